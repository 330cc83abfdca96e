// The live page: pictures follow the controls and the TOML; the newest recipe is drawn, one question at a time.

import { Controls, make } from "./controls.js";

const LONG_MS = 1500;
const SECOND_TRY_MS = 50;
const MOST_PHOTOGRAPHS = 12;
const at = (id) => document.getElementById(id);
const state = { samples: [], seed: 0, epoch: 0, draws: 12, typed: null, first: 0, isRunning: false, again: false, answer: null, shown: 0 };
let about, controls;

async function ask(path, question) {
  const how = question && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question) };
  let response;
  try {
    response = await fetch(path, how);
  } catch {
    throw new Error("augpipe has ended. Start it again, and open the address that it prints.");
  }
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

// Pictures

async function refresh() {
  state.again = true;
  if (state.isRunning) return;
  state.isRunning = true;
  while (state.again) {
    state.again = false;
    const waiting = setTimeout(() => {
      at("status").textContent = "Drawing. An op that is new on this machine is compiled first, once, in up to a minute.";
    }, LONG_MS);
    try {
      await draw();
    } catch (error) {
      at("status").textContent = error.message;
    } finally {
      clearTimeout(waiting);
    }
  }
  state.isRunning = false;
}

async function draw() {
  const began = performance.now();
  const { samples, seed, epoch, typed } = state;
  const question = { samples, seed, epoch, targets: at("targets").checked, before: at("wipe").valueAsNumber > 0 };
  const answer = await ask("pictures", { ...question, ...(typed === null ? { recipe: controls.recipe } : { toml: typed }) });
  if (answer.superseded) {
    state.again = true;  // another tab asks, too
    await new Promise((later) => setTimeout(later, SECOND_TRY_MS));
    return;
  }
  tell(answer.problems ?? [], typed !== null);
  at("pictures").classList.toggle("stale", Boolean(answer.problems));
  if (answer.problems) {
    at("status").textContent = "The recipe cannot be drawn: see what is marked.";
    return;
  }
  state.answer = answer;
  state.draws = answer.draws;
  await showPictures(answer);
  const unfollowed = answer.targets_do_not_follow.length ? `; targets do not follow ${answer.targets_do_not_follow.join(", ")}` : "";
  at("status").textContent = `${answer.pictures.length} pictures in ${Math.round(performance.now() - began)} ms${unfollowed}`;
  document.body.dataset.shown = ++state.shown;
  await new Promise((painted) => setTimeout(painted));  // a long text takes longer than they
  if (typed === null) {
    if (document.activeElement !== at("toml")) at("toml").value = answer.toml;
  } else if (typed === state.typed) {
    state.typed = null;
    controls.show(answer.recipe);
  }
}

function tell(problems, isTyped) {
  const lines = (list) => list.map((problem) => problem.line).join("\n");
  at("toml-problems").textContent = isTyped ? lines(problems) : "";
  at("toml").toggleAttribute("aria-invalid", isTyped && problems.length > 0);
  at("problems").textContent = isTyped ? "" : lines(controls.tell(problems));
  if (isTyped) controls.tell([]);
}

async function showPictures({ pictures, recipe }) {
  const list = at("pictures");
  while (list.children.length > pictures.length) list.lastElementChild.remove();
  while (list.children.length < pictures.length) list.append(newPicture(list.children.length));
  const several = new Set(pictures.map((picture) => picture.sample)).size > 1;
  const numViews = new Set(pictures.map((picture) => picture.view)).size;
  pictures.forEach((picture, number) => {
    const item = list.children[number];
    const [before, after] = item.querySelectorAll(".layer");
    showLayer(after, picture.after);
    showLayer(before, picture.before);
    const title = (several ? `${picture.name}, ` : "") + `epoch ${picture.epoch}` + (numViews > 1 ? `, view ${picture.view + 1}` : "");
    item.firstElementChild.setAttribute("aria-label", `${title}: ${picture.captions.join(", ")}`);
    const rows = picture.numbers.flatMap(([name, value]) => [make("dt", { textContent: name }), make("dd", { textContent: value })]);
    const columns = at("columns").valueAsNumber || 1;
    item.classList.toggle("ends", number % columns >= columns / 2);
    item.classList.toggle("low", number >= pictures.length - columns && pictures.length > columns);
    item.lastElementChild.replaceChildren(make("p", { textContent: title }), make("dl", {}, ...rows));
  });
  const images = [...list.querySelectorAll("img[src]")];
  await Promise.all(images.map((image) => image.decode().catch(() => {})));
  const { width, height } = pictures[0].after;
  list.style.setProperty("--ratio", width / height);
  for (const image of images) image.classList.toggle("small", image.naturalWidth < 100);
  list.setAttribute("aria-label", `${pictures.length} pictures by ${recipe.name || "the recipe"}`);
}

function showLayer(layer, picture) {
  const image = layer.firstElementChild;
  while (image.nextSibling) image.nextSibling.remove();
  if (!picture) return image.removeAttribute("src");
  image.src = picture.image;
  if (picture.objects.length) layer.append(drawn(picture, layer.clientWidth));
}

function drawn({ width, height, objects }, shownWidth) {
  const px = width / (shownWidth || 150);  // of the picture, in one of the screen
  const shape = (tag, attributes, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  for (const { name, colour, box, is_rotated, rings, points } of objects) {
    const look = { fill: colour, stroke: colour };
    for (const ring of rings) svg.append(shape("polygon", { ...look, points: ring.join(" ") }));
    for (const [x, y, seen] of points) svg.append(shape("circle", { ...look, cx: x, cy: y, r: 3 * px, "fill-opacity": seen > 1 ? 1 : 0 }));
    if (!box) continue;
    const [left, top, right, bottom] = box;
    if (!is_rotated) svg.append(shape("rect", { ...look, x: left, y: top, width: right - left, height: bottom - top, "fill-opacity": 0 }));
    if (right - left < (4 + 7 * name.length) * px || bottom - top < 13 * px) continue;  // no room for its name
    svg.append(shape("text", { fill: colour, x: left + 2 * px, y: top + 11 * px, "font-size": 11 * px }, name));
  }
  return svg;
}

function newPicture(number) {
  const picture = make("div", { className: "picture", tabIndex: 0, aria: { role: "img", describedby: `numbers-${number}` } },
    make("div", { className: "layer before" }, make("img", { alt: "" })), make("div", { className: "layer after" }, make("img", { alt: "" })));
  picture.addEventListener("pointerdown", (event) => {
    picture.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  picture.addEventListener("pointermove", (event) => {
    if (!picture.hasPointerCapture(event.pointerId)) return;
    const { left, width } = picture.getBoundingClientRect();
    wipe(100 * (event.clientX - left) / width);
  });
  picture.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -5, ArrowRight: 5 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    wipe(at("wipe").valueAsNumber + by);
  });
  return make("li", {}, picture, make("div", { className: "numbers", id: `numbers-${number}`, aria: { role: "tooltip" } }));
}

// The part of each picture, from the left, that shows it before the ops.
function wipe(percent) {
  at("wipe").value = Math.max(0, Math.min(100, percent));
  const share = at("wipe").valueAsNumber;
  at("share").textContent = `${Math.round(share)} %`;
  at("pictures").style.setProperty("--cut", `${share}%`);
  for (const picture of document.querySelectorAll(".picture")) picture.classList.toggle("wiped", share > 0);
  if (share > 0 && !document.querySelector(".before img[src]")) refresh();
}

// Photographs

async function showPhotographs(first) {
  const step = about.num_thumbnails;
  state.first = Math.max(0, Math.min(first, about.num_photographs - 1));
  const listed = await ask(`photographs/${state.first}`);
  at("photographs").replaceChildren(...listed.map(({ id, name }) => {
    const button = make("button", { type: "button", title: `${name}, sample ${id}`, aria: { pressed: state.samples.includes(id) } },
      make("img", { src: `thumbnails/${id}`, alt: name, loading: "lazy" }));
    button.dataset.id = id;
    button.addEventListener("click", () => choose(id));
    return make("li", {}, button);
  }));
  at("photographs-range").textContent = `${state.first} to ${state.first + listed.length - 1} of ${about.num_photographs}`;
  at("photographs-first").value = state.first;
  at("photographs-first").max = about.num_photographs - 1;
  at("photographs-back").disabled = state.first === 0;
  at("photographs-next").disabled = state.first + step >= about.num_photographs;
}

function choose(id) {
  if (!at("several").checked) state.samples = [id];
  else if (!state.samples.includes(id)) state.samples = [...state.samples, id].slice(-MOST_PHOTOGRAPHS);
  else if (state.samples.length > 1) state.samples = state.samples.filter((other) => other !== id);
  for (const button of at("photographs").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", state.samples.includes(Number(button.dataset.id)));
  }
  refresh();
}

// Texts

async function open(text) {
  at("became").replaceChildren();
  const answer = await ask("open", { text });
  at("text-problems").textContent = (answer.problems ?? []).map((problem) => problem.line).join("\n");
  if (answer.problems) return;
  at("became").append(make("ul", {}, ...answer.rows.map(([name, became, verdict, note]) =>
    make("li", {}, make("strong", { textContent: name }), verdict === "left out" ? " is left out" : `: ${became}, ${verdict}`, note && `; ${note}`))));
  state.typed = null;
  controls.show(answer.recipe);
  refresh();
}

function address() {
  const bytes = new TextEncoder().encode(JSON.stringify(state.answer.recipe));
  const letters = btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return `${location.origin}${location.pathname}#recipe=${letters}`;
}

async function copy(name, text) {
  try {
    await navigator.clipboard.writeText(text);
    at("status").textContent = `Copied the recipe as ${name}.`;
  } catch {  // the browser does not let the page write there
    at("text").value = text;
    at("text").select();
    at("status").textContent = `Select and copy: the recipe as ${name} is in the box.`;
  }
}

async function measure() {
  at("measure").disabled = true;
  at("speed").textContent = "Measuring, some ten seconds.";
  try {
    const found = await ask("speed", { recipe: controls.recipe });
    const rate = (number) => Math.round(number).toLocaleString("en");
    at("speed").textContent = found.problems
      ? found.problems.map((problem) => problem.line).join("\n")
      : `${rate(found.loader)} photographs a second on ${found.threads} threads, ${rate(found.one_thread)} on one. ` +
        `Decoding them whole without a recipe: ${rate(found.decode)} on ${found.threads}. ${found.cpu}.`;
  } catch (error) {
    at("speed").textContent = error.message;
  } finally {
    at("measure").disabled = false;
  }
}

function fromHash() {
  if (location.hash.startsWith("#recipe=")) return open(location.hash);
}

async function begin() {
  about = await ask("about");
  Object.assign(state, { samples: about.samples, seed: about.seed, epoch: about.epoch });
  at("source").textContent = `${about.title}, ${about.num_photographs.toLocaleString("en")} photographs`;
  at("seed").value = state.seed;
  at("epoch").value = state.epoch;
  at("targets-label").hidden = !about.has_targets;
  at("targets").checked = about.has_targets;
  controls = new Controls(at("controls"), about.schema, about.steps, () => { state.typed = null; refresh(); });
  controls.show(about.recipe);
  const on = (id, event, act) => at(id).addEventListener(event, act);
  on("wipe", "input", () => wipe(at("wipe").valueAsNumber));
  on("targets", "change", refresh);
  on("columns", "input", () => { at("pictures").style.setProperty("--columns", at("columns").valueAsNumber || 1); refresh(); });
  on("toml", "input", () => { state.typed = at("toml").value; refresh(); });
  for (const name of ["seed", "epoch"]) {
    on(name, "input", () => { if (at(name).value !== "") { state[name] = at(name).valueAsNumber; refresh(); } });
  }
  const step = (by) => { state.epoch = Math.max(0, state.epoch + by * state.draws); at("epoch").value = state.epoch; refresh(); };
  on("back", "click", () => step(-1));
  on("next", "click", () => step(1));
  on("photographs-back", "click", () => showPhotographs(state.first - about.num_thumbnails));
  on("photographs-next", "click", () => showPhotographs(state.first + about.num_thumbnails));
  on("photographs-first", "change", () => showPhotographs(at("photographs-first").valueAsNumber || 0));
  on("copy-toml", "click", () => copy("TOML", state.answer.toml));
  on("copy-python", "click", () => copy("Python", state.answer.python));
  on("copy-address", "click", () => copy("an address", address()));
  on("open", "click", () => open(at("text").value));
  on("measure", "click", measure);
  addEventListener("hashchange", fromHash);
  await fromHash();
  refresh();
  await showPhotographs(Math.floor(state.samples[0] / about.num_thumbnails) * about.num_thumbnails);
}

begin().catch((error) => { at("status").textContent = error.message; });
