// Controls made from a recipe's JSON schema: sliders for numbers and ranges, switches for what is done or not.

const SETTINGS = ["name", "border", "fill", "interpolation", "antialias", "channels"];
const NICE = [1, 2, 5, 10];

export function make(tag, properties = {}, ...children) {
  const { aria = {}, ...rest } = properties;
  const made = Object.assign(document.createElement(tag), rest);
  for (const [name, value] of Object.entries(aria)) {
    made.setAttribute(name === "role" ? "role" : `aria-${name}`, value);
  }
  made.append(...children);
  return made;
}

const words = (name) => name.replaceAll("_", " ");
const defaultsOf = (schema) => Object.fromEntries(Object.entries(schema.properties).map(([name, field]) => [name, copied(field.default ?? null)]));
const copied = (data) => JSON.parse(JSON.stringify(data));

// Limits and step of a slider: the schema's, where it has some that are near what is usual, else about the numbers there are.
// Where a range is drawn from in steps, the slider takes the same ones from where it stands.
function sliderLimits(schema, values, usual, drawnBy) {
  const numbers = [...values, ...usual].filter((value) => typeof value === "number");
  const most = Math.max(...numbers.map(Math.abs), 0) || 1;
  const least = schema.minimum ?? schema.exclusiveMinimum ?? (Math.min(...numbers, 0) < 0 ? -2 * most : 0);
  const largest = schema.maximum ?? schema.exclusiveMaximum ?? 2 * most;
  const low = Math.max(least, -4 * most);
  const high = Math.min(largest, 4 * most);
  if (drawnBy) {
    const first = values[0] - Math.floor((values[0] - low) / drawnBy + 1e-9) * drawnBy;
    return { min: schema.exclusiveMinimum === low && first <= low ? first + drawnBy : first, max: high, step: drawnBy };
  }
  if (schema.type === "integer") return { min: low, max: high, step: 1 };
  const rough = (high - low) / 200;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * NICE.find((times) => times * power >= rough * 0.999);
  return { min: schema.exclusiveMinimum === low ? step : low, max: high, step };
}

export class Controls {
  // `steps` of ops' fields, as the server has them; `changed` is called after each change by the user.
  constructor(root, schema, steps, changed) {
    this.root = root;
    this.schema = schema;
    this.steps = steps;
    this.changed = changed;
    this.off = new WeakSet();
    this.whole = {};
  }

  show(recipe) {
    this.whole = copied(recipe);
    this.build();
  }

  // What is switched off is not part of it.
  get recipe() {
    const kept = (list) =>
      list.filter((op) => !this.off.has(op)).map((op) => {
        if (!op.ops) return op;
        const weights = op.weights ? { weights: op.weights.filter((_, place) => !this.off.has(op.ops[place])) } : {};
        return { ...op, ...weights, ops: kept(op.ops) };
      });
    const views = this.whole.views.map((view) => ({ ...view, ops: kept(view.ops) }));
    return { ...this.whole, ops: kept(this.whole.ops), views, mixing: kept(this.whole.mixing) };
  }

  // Mistakes next to their fields; returns those that have none.
  tell(problems) {
    for (const field of this.fields.filter((one) => one.wrong.textContent)) {
      field.wrong.textContent = "";
      for (const input of field.inputs()) input.removeAttribute("aria-invalid");
    }
    return problems.filter(({ place, text }) => {
      const named = `${place}.${text.split("=")[0]}`;
      const covers = (field) => field.place === named || (place + ".").startsWith(field.place + ".") || place.startsWith(field.place + "[");
      const field = this.fields.filter(covers).sort((a, b) => b.place.length - a.place.length)[0];
      if (!field) return true;
      field.wrong.textContent += (field.wrong.textContent && " ") + text;
      for (const input of field.inputs()) input.setAttribute("aria-invalid", "true");
      return false;
    });
  }

  build() {
    const focused = document.activeElement?.id;
    this.fields = [];
    const recipe = this.whole;
    const properties = this.schema.properties;
    const settings = SETTINGS.map((name) => this.field(recipe, name, properties[name], name, `set-${name}`, "recipe"));
    const wasOpen = this.root.querySelector("details")?.open;
    const parts = [make("details", { className: "settings", open: Boolean(wasOpen) }, make("summary", { textContent: "Settings of the whole recipe" }), ...settings)];
    if (recipe.views.length) {
      recipe.views.forEach((view, number) => {
        const count = this.resolve({ $ref: "#/$defs/View" }).properties.count;
        const place = `views[${number}]`;
        parts.push(make("div", { className: "view" }, make("h3", { textContent: `View ${number + 1}` }),
          this.field(view, "count", count, `${place}.count`, `view-${number}-count`, `view ${number + 1}`),
          this.list(view.ops, properties.ops, `${place}.ops`, `view-${number}`)));
      });
    } else {
      parts.push(this.list(recipe.ops, properties.ops, "ops", "op"));
    }
    parts.push(make("h3", { textContent: "Mixing with other photographs" }), this.list(recipe.mixing, properties.mixing, "mixing", "mix"));
    this.root.replaceChildren(...parts);
    if (focused && document.activeElement === document.body) document.getElementById(focused)?.focus();
  }

  rebuilt() {
    this.build();
    this.changed();
  }

  resolve(schema) {
    return schema.$ref ? this.schema.$defs[schema.$ref.split("/").at(-1)] : schema;
  }

  list(ops, schema, place, id) {
    const kinds = schema.items.discriminator.mapping;
    let number = 0;
    const cards = ops.map((op, at) => this.card(ops, at, kinds, this.off.has(op) ? null : `${place}[${number++}].${op.op}`, `${id}-${at}`));
    const chosen = make("select", { id: `${id}-kind`, aria: { label: "Op to add" } }, ...Object.keys(kinds).map((kind) => new Option(words(kind), kind)));
    const add = make("button", { type: "button", textContent: "Add", id: `${id}-add` });
    add.addEventListener("click", () => {
      ops.push(defaultsOf(this.resolve({ $ref: kinds[chosen.value] })));
      this.rebuilt();
    });
    return make("div", {}, ...cards, make("div", { className: "add" }, chosen, add));
  }

  card(ops, at, kinds, place, id) {
    const op = ops[at];
    const schema = this.resolve({ $ref: kinds[op.op] });
    const isOff = this.off.has(op);
    const on = make("input", { type: "checkbox", id: `${id}-on`, checked: !isOff, aria: { role: "switch" } });
    on.addEventListener("change", () => {
      if (on.checked) this.off.delete(op);
      else this.off.add(op);
      this.rebuilt();
    });
    const button = (name, text, isPossible, act) => {
      const made = make("button", { type: "button", textContent: text, id: `${id}-${name}`, disabled: !isPossible, aria: { label: `${name} ${words(op.op)}` } });
      made.addEventListener("click", () => { act(); this.rebuilt(); });
      return made;
    };
    const swap = (other) => { [ops[at], ops[other]] = [ops[other], ops[at]]; };
    const head = make("div", { className: "head" }, on, make("label", { htmlFor: on.id, textContent: words(op.op) }),
      button("raise", "↑", at > 0, () => swap(at - 1)), button("lower", "↓", at < ops.length - 1, () => swap(at + 1)),
      button("remove", "×", true, () => ops.splice(at, 1)));
    const told = schema.description.split(/(?<=[.;:])\s|\s\(/)[0].replace(/[;:]$/, ".");
    const fields = make("div", { className: "fields" }, make("p", { className: "about", title: schema.description, textContent: told }));
    for (const [name, field] of Object.entries(schema.properties)) {
      if (name === "op") continue;
      const inner = place === null ? null : `${place}.${name}`;
      fields.append(name === "ops"
        ? make("div", { className: "nested" }, this.list(op.ops, field, inner ?? "", `${id}-ops`))
        : this.field(op, name, field, inner, `${id}-${name}`, words(op.op)));
    }
    const wrong = make("div", { className: "wrong" });
    const made = make("div", { className: isOff ? "op off" : "op", aria: { role: "group", label: words(op.op) } }, head, make("div", { className: "field" }, wrong), fields);
    if (place !== null) this.fields.push({ place, wrong, inputs: () => [] });
    return made;
  }

  field(holder, name, schema, place, id, of) {
    const about = make("small", { className: "about", id: `${id}-about`, textContent: schema.description ?? "" });
    const wrong = make("div", { className: "wrong", id: `${id}-wrong` });
    const inputs = make("div", { className: "inputs" });
    const label = `${of} ${words(name)}`;
    const variants = (schema.anyOf ?? [schema]).map((one) => this.resolve(one)).filter((one) => one.maxItems !== 1);
    const chosen = variants.find((one) => fits(one, holder[name] ?? null)) ?? variants[0];
    inputs.append(...this.inputs(holder, name, chosen, schema.default, id, label, place));
    if (variants.length > 1) {
      const kind = make("select", { className: "kind", id: `${id}-kind`, aria: { label: `${label}: kind of value` } },
        ...variants.map((one, number) => new Option(kindName(one), String(number), false, one === chosen)));
      kind.addEventListener("change", () => {
        holder[name] = changedTo(variants[Number(kind.value)], holder[name], schema.default);
        this.rebuilt();
      });
      inputs.append(kind);
    }
    for (const input of inputs.querySelectorAll("input")) input.setAttribute("aria-describedby", `${about.id} ${wrong.id}`);
    if (place !== null) this.fields.push({ place, wrong, inputs: () => inputs.querySelectorAll("input") });
    return make("div", { className: "field" }, make("span", { className: "name", textContent: words(name) }), inputs, about, wrong);
  }

  inputs(holder, name, schema, usual, id, label, place) {
    const steps = this.steps[holder.op] ?? {};
    const isStep = Object.values(steps).includes(name);
    const drawnBy = typeof steps[name] === "string" ? holder[steps[name]] : steps[name];
    const set = (value) => {
      holder[name] = value;
      if (isStep) this.build();  // sliders go by it
      this.changed();
    };
    const value = holder[name] ?? null;
    if (schema.type === "boolean") {
      const box = make("input", { type: "checkbox", id, checked: value, aria: { role: "switch", label } });
      box.addEventListener("change", () => set(box.checked));
      return [box];
    }
    if ((schema.const !== undefined || schema.type === "null") && fits(schema, value)) return [];
    if (schema.enum) {
      const choice = make("select", { id, aria: { label } }, ...schema.enum.map((one) => new Option(words(String(one)), JSON.stringify(one), false, one === value)));
      choice.addEventListener("change", () => set(JSON.parse(choice.value)));
      return [choice];
    }
    if (schema.items?.enum) {
      return schema.items.enum.map((one) => {
        const box = make("input", { type: "checkbox", id: `${id}-${one}`, checked: value.includes(one) });
        box.addEventListener("change", () => set(schema.items.enum.filter((other) => (other === one ? box.checked : holder[name].includes(other)))));
        return make("label", {}, box, ` ${words(String(one))}`);
      });
    }
    if (schema.properties && fits(schema, value)) {  // a table within the op
      return Object.entries(schema.properties).map(([inner, one]) =>
        this.field(value, inner, one, place && `${place}.${inner}`, `${id}-${inner}`, label));
    }
    const defaults = [usual].flat();
    if (schema.type === "number" || schema.type === "integer") {
      return [slider(value ?? schema.minimum ?? 0, isStep ? null : sliderLimits(schema, [value], defaults, drawnBy), id, label, set)];
    }
    if (schema.prefixItems && Array.isArray(value) && value.every((one) => typeof one === "number")) {
      const isRange = value.length === 2;
      const sliders = value.map((one, at) => {
        const which = isRange ? ["from", "to"][at] : String(at + 1);
        return slider(one, sliderLimits(schema.prefixItems[at], value, defaults, drawnBy), `${id}-${at}`, `${label} ${which}`, (moved, isSlid) => {
          const next = [...holder[name]];
          next[at] = moved;
          const other = 1 - at;
          if (isSlid && isRange && next[0] > next[1] && !["size", "tiles", "px"].includes(name)) {
            next[other] = moved;  // a range's other end is pushed along
            sliders[other].show(moved);
          }
          set(next);
        });
      });
      return sliders;
    }
    const text = make("input", { type: "text", id, value: typeof value === "string" ? value : JSON.stringify(value), aria: { label } });
    text.addEventListener("input", () => {
      if (schema.type === "string") return set(text.value);
      try {
        return set(JSON.parse(text.value));
      } catch {
        return set(text.value);  // told by the recipe's own checks
      }
    });
    return [text];
  }
}

// A slider with a box for the exact number; the box alone where there are no limits.
function slider(value, limits, id, label, set) {
  const exact = make("input", { type: "number", id: `${id}-exact`, step: "any", aria: { label: limits ? `${label}, exactly` : label } });
  const slide = make("input", { type: "range", id, ...limits, aria: { label } });
  const made = make("span", { className: "number" }, ...(limits ? [slide] : []), exact);
  made.show = (number) => { slide.value = number; exact.value = Number(number.toPrecision(6)); };
  made.show(value);
  slide.addEventListener("input", () => {
    const moved = Number(Number(slide.value).toPrecision(12));
    exact.value = moved;
    set(moved, true);
  });
  exact.addEventListener(limits ? "input" : "change", () => {
    if (exact.value === "") return;
    slide.value = exact.value;
    set(Number(exact.value));
  });
  return made;
}

function fits(schema, value) {
  if (schema.const !== undefined) return value === schema.const || (value === null && schema.const === "continuous");
  if (schema.type === "null") return value === null;
  if (schema.type === "object") return value !== null && typeof value === "object" && !Array.isArray(value);
  if (schema.type === "array") return Array.isArray(value) && (!schema.maxItems || value.length === schema.maxItems);
  if (schema.type === "integer") return Number.isInteger(value);
  return typeof value === schema.type;
}

function kindName(schema) {
  if (schema.const !== undefined) return schema.const === "continuous" ? "None" : String(schema.const);
  if (schema.type === "array") return schema.maxItems ? ["", "one", "two", "three", "four"][schema.maxItems] : "list";
  return { string: "text", object: "table", null: "None" }[schema.type] ?? "one";
}

function changedTo(schema, value, usual) {
  if (fits(schema, usual)) return copied(usual);
  if (schema.const !== undefined) return schema.const === "continuous" ? null : schema.const;
  if (schema.properties) return defaultsOf(schema);
  if (schema.type === "null") return null;
  const number = [value, usual, 1].flat().find((one) => typeof one === "number");
  if (schema.type !== "array") return number;
  return schema.prefixItems ? Array(schema.maxItems).fill(number) : [number];
}
