"""The recipe in a script that a name, a line or a call of a function stands for."""

import ast

from augpipe.recipes.importers.calls import TORCHVISION, Call, Script, shown
from augpipe.recipes.importers.names import Names, changes, names_within
from augpipe.recipes.importers.places import HOLDERS, Place, places_of


def find_recipe(script: Script, name: str | None = None) -> Call:
    """The recipe that a name, a line, or a call of a function stands for; without one, the only one.

    Args:
        script: that holds it.
        name: as `train`, `transforms['train']`, `get_transforms(phase='train', size=224)`, or any of its lines, as
            `12`.

    Raises:
        ValueError: it is not there, there are several, or it is more than calls and literals.
    """
    if name is None and len(script.body) == 1 and isinstance(script.body[0], ast.Expr):
        return _call(script, script.body[0].value, script.names)
    places = places_of(script.body)
    told = ", ".join(place.told for place in places)
    if name is None and len(places) != 1:
        how = f"as train.py:{places[0].label} or name={places[0].label!r}" if places else ""
        remedy = f"Name one of them, {how}: {told}." if places else "Give one, as NAME = A.Compose([...])."
        raise ValueError(f"the text holds {len(places)} recipes. {remedy}")
    name = (name or places[0].label).strip()
    named = [place for place in places if _unquoted(place.label) == _unquoted(name)]
    if not named and name.isdecimal():
        named = [place for place in places if place.node.lineno <= int(name) <= (place.node.end_lineno or 0)]
        if not named:
            raise ValueError(f"the text has no recipe in line {name}. It has {told or 'none'}.")
    if len(named) > 1:
        raise ValueError(f"{name} is of {len(named)} recipes. Give each a line of its own.")
    for place in named:
        is_returned = place.function is not None and any(map(_gives, ast.walk(place.function)))
        is_set_again = name.isdecimal() and script.names.values.get(place.label, place) is None
        if is_set_again or place.label not in script.names.values or (place.function is not None and not is_returned):
            return _call(script, place.node, _names_at(script, place))
    asked = _expression(named[0].label if named else name)
    first = next((one.id for one in ast.walk(asked) if isinstance(one, ast.Name)), None) if asked else None
    found = script.names.values.get(first or "")
    is_keyed = isinstance(asked, ast.Subscript) and isinstance(found, ast.Dict)
    if asked is None or first not in script.names.values or is_keyed:
        raise ValueError(f"the text assigns no {name}. It has {told or 'no recipe'}.")
    is_attribute = isinstance(asked, ast.Attribute) and isinstance(asked.value, ast.Name)
    if isinstance(found, ast.ClassDef) and not is_attribute:
        instead = f", or name one of {told}" if told else ""
        raise ValueError(
            f"{first} is a class, which is not run. Write a function that returns the transforms{instead}."
        )
    if isinstance(asked, ast.Name) and isinstance(found, ast.FunctionDef | ast.Dict):
        if isinstance(found, ast.Dict):
            raise ValueError(f"{name} holds several. Name one of them: {told}.")
        asked = ast.copy_location(ast.Call(func=asked, args=[], keywords=[]), asked)
    return _call(script, asked, script.names)


def _names_at(script: Script, place: Place) -> Names:
    """The names where a recipe stands: arguments at their defaults, and the statements before it."""
    around = names = script.names
    for outer, before, later in place.steps():
        if isinstance(outer, ast.FunctionDef):
            names = script.with_arguments(outer, around, (), {})
        elif not isinstance(outer, ast.ClassDef | ast.If):
            names = names.after(outer)  # what a loop or a block changes
        for one in before:
            names = script.behind(one, names)
        around = around if isinstance(outer, ast.ClassDef) else names  # methods do not see names of their class
        for one in later if place.target else ():
            if changes(place.target, one):
                told = f"{place.target} as line {place.node.lineno} has it"
                script.assume(f"{told}: what line {one.lineno} changes is not read.")
    return names.bound(dict.fromkeys(names_within(place.way[-1])))


def _call(script: Script, node: ast.expr, names: Names) -> Call:
    made = script.value(node, names)
    several = made if isinstance(made, dict) else dict(enumerate(made)) if isinstance(made, list | tuple) else {}
    held = [key for key, one in several.items() if isinstance(one, Call) and one.name in HOLDERS]
    if len(held) > 1 or (held and isinstance(made, dict)):
        told = ", ".join(f"{ast.unparse(node)}[{key!r}]" for key in held)
        raise ValueError(f"{ast.unparse(node)} holds several. Name one of them: {told}.")
    first = next((one for one in made if isinstance(one, Call)), None) if isinstance(made, list | tuple) else None
    if first:  # transforms without a Compose around them
        module = TORCHVISION if TORCHVISION.startswith(f"{first.library}.") else first.library
        return Call(path=f"{module}.Compose", line=first.line, args=(list(made),))
    if not isinstance(made, Call):
        raise ValueError(f"line {node.lineno}: {shown(node)} is not a call of a library's transform.")
    return made


def _expression(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _gives(node: ast.AST) -> bool:
    return isinstance(node, ast.Return) and node.value is not None


def _unquoted(name: str) -> str:
    return name.replace("'", "").replace('"', "")
