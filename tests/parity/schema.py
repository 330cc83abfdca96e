"""A checker for as much of JSON Schema as pydantic writes, so that tests need no other package."""

from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
KNOWN = {
    *("$defs", "$ref", "additionalProperties", "anyOf", "const", "default", "description", "discriminator", "enum"),
    *("exclusiveMaximum", "exclusiveMinimum", "items", "maxItems", "maximum", "minItems", "minLength", "minimum"),
    *("oneOf", "prefixItems", "properties", "required", "title", "type"),
}


def problems(data: Any, schema: dict[str, Any], root: dict[str, Any], place: str = "") -> list[str]:
    """What in `data` breaks the schema; AssertionError where the schema says something that is not known here."""
    assert set(schema) <= KNOWN, set(schema) - KNOWN
    if "$ref" in schema:
        return problems(data, root["$defs"][schema["$ref"].rpartition("/")[2]], root, place)
    found = []
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            fitting = [option for option in schema[choice] if not problems(data, option, root, place)]
            if len(fitting) != 1 and not (choice == "anyOf" and fitting):
                found.append(f"{place}: {data!r} fits {len(fitting)} of {choice}")
    if "type" in schema:
        is_bool = isinstance(data, bool)
        if not isinstance(data, TYPES[schema["type"]]) or (is_bool and schema["type"] != "boolean"):
            return [f"{place}: {data!r} is no {schema['type']}"]
    if ("const" in schema and data != schema["const"]) or ("enum" in schema and data not in schema["enum"]):
        found.append(f"{place}: {data!r}")
    if isinstance(data, int | float):
        bounds = (
            data >= schema.get("minimum", data),
            data <= schema.get("maximum", data),
            data > schema.get("exclusiveMinimum", data - 1),
            data < schema.get("exclusiveMaximum", data + 1),
        )
        found += [] if all(bounds) else [f"{place}: {data!r} out of bounds"]
    if isinstance(data, dict):
        fields = schema.get("properties", {})
        found += [f"{place}: {name} is missing" for name in schema.get("required", ()) if name not in data]
        for name, value in data.items():
            if name in fields:
                found += problems(value, fields[name], root, f"{place}.{name}")
            elif schema.get("additionalProperties") is False:
                found.append(f"{place}: {name} is unknown")
    if isinstance(data, list):
        if not schema.get("minItems", 0) <= len(data) <= schema.get("maxItems", len(data)):
            found.append(f"{place}: {len(data)} items")
        parts = schema.get("prefixItems", [schema.get("items", {})] * len(data))
        for i, (item, part) in enumerate(zip(data, parts, strict=False)):
            found += problems(item, part, root, f"{place}[{i}]")
    return found
