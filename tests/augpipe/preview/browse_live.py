"""Use the live page in headless Chromium as a person would; what was found is printed as JSON.

usage: python tests/augpipe/preview/browse_live.py ADDRESS [--browser PATH] [--pictures FOLDER] [--server PID]
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

LOOKS: dict[str, dict[str, Any]] = {
    "wide": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "narrow": {"viewport": {"width": 400, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
}
SERIOUS = ("serious", "critical")
SLIDER = "op-1-max_deg"
"""The second op of the recipe is to be a Rotate."""
MOVE = """([id, value]) => new Promise((done) => {
  const slider = document.getElementById(id), began = performance.now(), shown = document.body.dataset.shown;
  new MutationObserver((_, watching) => {
    if (document.body.dataset.shown === shown) return;
    watching.disconnect();
    setTimeout(() => done(performance.now() - began));
  }).observe(document.body, { attributes: true });
  slider.value = value;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
})"""
QUICK_MOVES = """async ([id, num]) => {
  const slider = document.getElementById(id);
  for (let move = 0; move < num; move += 1) {
    slider.value = 1 + move % 20;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    await new Promise((later) => setTimeout(later, 10));
  }
}"""


class Tab:
    """The page in a tab, and what went wrong in it."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.page: Page = context.new_page()
        self.problems: list[str] = []
        self.num_asked = 0
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("console", lambda line: self.problems.append(line.text) if line.type == "error" else None)
        self.page.on("request", lambda request: self._request(request.url, address))
        self.page.goto(address)
        self.page.wait_for_function("() => document.body.dataset.shown >= 1", timeout=120_000)
        self.page.wait_for_load_state("networkidle")

    def _request(self, url: str, address: str) -> None:
        self.num_asked += url.endswith("/pictures")
        if not url.startswith((address.partition("#")[0], "data:")):
            self.problems.append(f"elsewhere: {url}")

    def images(self) -> list[str]:
        """What is shown, in order."""
        found: list[str] = self.page.eval_on_selector_all(".after img", "(all) => all.map((one) => one.src)")
        return found

    def settled(self) -> None:
        """Wait for the answer to the last change, and for whatever follows from it."""
        self.page.wait_for_timeout(300)
        self.page.wait_for_load_state("networkidle")
        self.page.wait_for_timeout(300)


def looked_at(browser: Browser, address: str, look: str, pictures: Path | None) -> list[str]:
    """What is wrong with the page at a size and in a colour scheme, with all parts of it open."""
    context = browser.new_context(**LOOKS[look], reduced_motion="reduce")
    tab = Tab(context, address)
    page = tab.page
    if pictures is not None:
        page.screenshot(path=pictures / f"{look}.png")
    for state in ("as it opens", "with numbers and a mistake"):
        for violation in Axe().run(page).response["violations"]:
            if violation["impact"] in SERIOUS:
                places = [node["target"][0] for node in violation["nodes"]][:3]
                tab.problems.append(f"{state}: {violation['id']}: {places}")
        beyond_px = page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth")
        tab.problems += [f"{state}: {beyond_px} px wider than the window"] if beyond_px > 0 else []
        page.locator("summary").click()
        page.fill(f"#{SLIDER}-exact", "-3")
        tab.settled()
        page.locator(".picture").nth(1).focus()
    if pictures is not None:
        page.screenshot(path=pictures / f"{look}-mistake.png")
    context.close()
    return [f"{look}: {problem}" for problem in tab.problems]


def used(browser: Browser, address: str) -> dict[str, Any]:
    """What a person sees after each thing that can be done on the page."""
    context = browser.new_context(**LOOKS["wide"], permissions=["clipboard-read", "clipboard-write"])
    tab = Tab(context, address)
    page, found = tab.page, dict[str, Any]()
    first = tab.images()
    page.evaluate(MOVE, [SLIDER, 20])
    moved = tab.images()
    found["pictures that a slider moves"] = [len(first), sum(a != b for a, b in zip(first, moved, strict=True))]
    found["toml follows"] = "max_deg = 20" in page.input_value("#toml")
    page.locator(f"#{SLIDER}").focus()
    page.keyboard.press("ArrowLeft")
    tab.settled()
    found["by keyboard"] = page.input_value(f"#{SLIDER}-exact") == "19" and tab.images() != moved
    page.locator("#op-1-on").click()
    tab.settled()
    found["a switch leaves an op out"] = 'op = "rotate"' not in page.input_value("#toml")
    page.locator("#op-1-on").click()
    page.fill(f"#{SLIDER}-exact", "-3")
    tab.settled()
    found["mistake"] = page.inner_text(f"#{SLIDER}-wrong")
    found["it is marked"] = page.get_attribute(f"#{SLIDER}-exact", "aria-invalid") == "true"
    page.fill(f"#{SLIDER}-exact", "10")
    tab.settled()
    found["it is gone"] = page.inner_text(f"#{SLIDER}-wrong") == "" and tab.images() == first
    page.fill("#toml", page.input_value("#toml").replace("max_deg = 10.0", "max_deg = 7"))
    tab.settled()
    found["controls follow the toml"] = page.input_value(f"#{SLIDER}-exact") == "7"
    page.fill("#toml", "[[ops]")
    tab.settled()
    found["mistake in toml"] = page.inner_text("#toml-problems")
    box = page.locator(".picture").nth(5).bounding_box()
    assert box is not None
    page.fill("#text", "A.Compose([A.CenterCrop(48, 48), A.RandomRain(), A.Rotate(limit=30)])")
    page.locator("#open").click()
    tab.settled()
    found["opened"] = [page.inner_text("#became"), page.locator("#controls .op").count()]
    page.mouse.move(box["x"] + 2, box["y"] + 9)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 9)
    page.mouse.up()
    tab.settled()
    before = page.eval_on_selector_all(".before img", "(all) => all.filter((one) => one.naturalWidth > 0).length")
    found["a drag shows what was before"] = [page.inner_text("#share"), before]
    page.mouse.move(box["x"] + 9, box["y"] + 9)
    found["numbers"] = page.locator("#numbers-5").inner_text()
    page.locator("#photographs button").nth(1).click()
    tab.settled()
    found["another photograph"] = [
        page.get_attribute("#photographs li:nth-child(2) button", "aria-pressed"),
        "looks at" in page.locator("#numbers-0").text_content(),
    ]
    for name in ("toml", "python", "address"):
        page.locator(f"#copy-{name}").click()
        found[f"copied {name}"] = page.evaluate("() => navigator.clipboard.readText()")
    again = Tab(context, found["copied address"])
    found["the address opens the recipe"] = again.page.input_value("#toml") == found["copied toml"]
    for kind in page.eval_on_selector_all("#op-kind option", "(all) => all.map((one) => one.value)"):
        again.page.select_option("#op-kind", kind)
        again.page.locator("#op-add").click()
    again.settled()
    found["cards of all ops"] = again.page.locator("#controls .op").count()
    page.locator("#measure").click()
    page.wait_for_function("() => !document.getElementById('measure').disabled", timeout=120_000)
    found["speed"] = page.inner_text("#speed")
    found["problems"] = tab.problems + again.problems
    context.close()
    return found


def moved(browser: Browser, address: str, server: int | None) -> dict[str, Any]:
    """What 50 moves take, each waited for, and what 200 quick ones leave behind in the server and in the page."""
    context = browser.new_context(**LOOKS["wide"])
    tab = Tab(context, address)
    took_ms = [tab.page.evaluate(MOVE, [SLIDER, 1 + number % 20]) for number in range(55)][5:]
    found: dict[str, Any] = {"median_ms": statistics.median(took_ms), "min_ms": min(took_ms), "max_ms": max(took_ms)}
    session = context.new_cdp_session(tab.page)

    def left() -> dict[str, int]:
        session.send("HeapProfiler.collectGarbage")
        status = Path(f"/proc/{server}/status").read_text() if server is not None else ""
        known = dict(line.split(":", 1) for line in status.splitlines() if line.startswith(("Threads", "VmRSS")))
        heap = session.send("Runtime.getHeapUsage")["usedSize"]
        return {"heap_kB": round(heap / 1000), **{name: int(text.split()[0]) for name, text in known.items()}}

    tab.page.evaluate(QUICK_MOVES, [SLIDER, 200])
    tab.settled()
    found["before"], asked = left(), tab.num_asked
    tab.page.evaluate(QUICK_MOVES, [SLIDER, 200])
    tab.settled()
    found["after"], found["questions_of_200_moves"] = left(), tab.num_asked - asked
    found["the last is shown"] = tab.page.input_value(
        f"#{SLIDER}-exact"
    ) == "20" and "max_deg = 20" in tab.page.input_value("#toml")
    context.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--browser", help="left out: the one that playwright has installed")
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--server", type=int, help="its process id")
    given = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given.browser, args=["--no-sandbox"])
        looks = [line for look in LOOKS for line in looked_at(browser, given.address, look, given.pictures)]
        found = {"looks": looks, "used": used(browser, given.address)}
        found["moved"] = moved(browser, given.address, given.server)
        browser.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
