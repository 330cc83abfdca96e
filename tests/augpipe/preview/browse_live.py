"""Use the live page in headless Chromium as a person would; prints what was not as it should be, as JSON.

usage: python tests/augpipe/preview/browse_live.py ADDRESS [--browser PATH] [--pictures FOLDER] [--server PID]

The page's recipe is to be a crop, a Rotate and any third op, over photographs of which there are two at least.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, sync_playwright

LOOKS: dict[str, dict[str, Any]] = {
    "wide": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "narrow": {"viewport": {"width": 400, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
}
SERIOUS = ("serious", "critical")
SLIDER, EXACT, WRONG = "#op-1-max_deg", "#op-1-max_deg-exact", "#op-1-max_deg-wrong"
QUICK_MOVES = """async ([selector, num]) => {
  const slider = document.querySelector(selector);
  for (let move = 0; move < num; move += 1) {
    slider.value = 1 + move % 20;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    await new Promise((later) => setTimeout(later, 10));
  }
}"""


class Tab:
    """The page in a tab, and what went wrong in it."""

    def __init__(self, context: BrowserContext, address: str, problems: list[str]) -> None:
        self.page, self.problems, self.num_asked = context.new_page(), problems, 0
        self.page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        self.page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
        self.page.on("request", lambda request: self._request(request.url, address.partition("#")[0]))
        self.page.goto(address)
        self.page.wait_for_function("() => document.body.dataset.shown >= 1", timeout=120_000)
        self.settle()

    def _request(self, url: str, address: str) -> None:
        self.num_asked += url.endswith("/pictures")
        self.expect(url.startswith((address, "data:")), f"asks elsewhere: {url}")

    def expect(self, condition: bool, what: str) -> None:
        """Note what is not as it should be."""
        self.problems += [] if condition else [what]

    def settle(self) -> None:
        """Wait for the answer to the last change, and for what follows from it."""
        self.page.wait_for_timeout(300)
        self.page.wait_for_load_state("networkidle")
        self.page.wait_for_timeout(300)

    def fill(self, selector: str, text: str) -> None:
        self.page.fill(selector, text)
        self.settle()

    def images(self, layer: str = "after") -> list[str]:
        """What is shown, in order."""
        found: list[str] = self.page.eval_on_selector_all(f".{layer} img[src]", "(all) => all.map((one) => one.src)")
        return found


def look(browser: Browser, address: str, name: str, pictures: Path | None, problems: list[str]) -> None:
    """The page at a size and in a colour scheme, as it opens, and with numbers and a mistake on it."""
    context = browser.new_context(**LOOKS[name], reduced_motion="reduce")
    tab = Tab(context, address, problems)
    for state in ("opened", "mistake"):
        found = Axe().run(tab.page).response
        tab.expect(len(found["passes"]) > 15, f"{name}, {state}: axe looked at little")
        for violation in found["violations"]:
            places = [node["target"][0] for node in violation["nodes"]][:3]
            tab.expect(violation["impact"] not in SERIOUS, f"{name}, {state}: {violation['id']} at {places}")
        beyond_px = tab.page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth")
        tab.expect(beyond_px <= 0, f"{name}, {state}: {beyond_px} px wider than the window")
        if pictures is not None:
            tab.page.screenshot(path=pictures / f"{name}-{state}.png")
        if state == "opened":
            tab.page.locator("summary").click()
            tab.fill(EXACT, "-3")
            tab.page.locator(".picture").nth(1).focus()
    context.close()


def use(browser: Browser, address: str, problems: list[str]) -> None:
    """Everything that can be done on the page, one after the other."""
    context = browser.new_context(**LOOKS["wide"], permissions=["clipboard-read", "clipboard-write"])
    tab = Tab(context, address, problems)
    page, first = tab.page, tab.images()
    page.evaluate(QUICK_MOVES, [SLIDER, 20])
    tab.settle()
    num_moved = sum(a != b for a, b in zip(first, tab.images(), strict=True))
    tab.expect(len(first) == 12 and num_moved >= 9, f"a slider moved {num_moved} of {len(first)} pictures")
    tab.expect("max_deg = 20" in page.input_value("#toml"), "the TOML did not follow")
    page.locator(SLIDER).focus()
    page.keyboard.press("ArrowLeft")
    tab.settle()
    tab.expect(page.input_value(EXACT) == "19" and "max_deg = 19" in page.input_value("#toml"), "keys move no slider")
    page.locator("#op-1-on").click()
    tab.settle()
    tab.expect('op = "rotate"' not in page.input_value("#toml"), "a switch leaves no op out")
    page.locator("#op-1-on").click()
    tab.fill(EXACT, "-3")
    is_marked = page.get_attribute(EXACT, "aria-invalid") == "true"
    tab.expect(page.inner_text(WRONG).startswith("max_deg=-3 must be above 0") and is_marked, "no mistake in its place")
    tab.fill(EXACT, "10")
    tab.expect(page.inner_text(WRONG) == "" and tab.images() == first, "the mistake stayed")
    tab.fill("#toml", page.input_value("#toml").replace("max_deg = 10.0", "max_deg = 7"))
    tab.expect(page.input_value(EXACT) == "7", "controls did not follow the TOML")
    tab.fill("#toml", "[[ops]")
    tab.expect(page.inner_text("#toml-problems").startswith("not valid TOML"), "no mistake under the TOML")
    tab.fill("#text", "A.Compose([A.RandomRain(), A.RandomCrop(48, 48), A.Rotate(limit=30)])")
    page.locator("#open").click()
    tab.settle()
    tab.expect("RandomRain is left out" in page.inner_text("#became"), "what was left out is not told")
    tab.expect(page.locator("#controls .op").count() == 2, "the text was not opened")
    box = page.locator(".picture").nth(5).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 2, box["y"] + 9)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 9)
    page.mouse.up()
    tab.settle()
    is_half = page.inner_text("#share") == "50 %" and len(tab.images("before")) == 12
    tab.expect(is_half, "a drag does not show what was before")
    page.mouse.move(box["x"] + 9, box["y"] + 9)
    tab.expect("looks at" in page.locator("#numbers-5").inner_text(), "no numbers on hover")
    shown = tab.images()
    page.locator("#photographs button").nth(1).click()
    tab.settle()
    tab.expect(tab.images() != shown, "no other photograph")
    copied = {}
    for name in ("toml", "python", "address"):
        page.locator(f"#copy-{name}").click()
        copied[name] = page.evaluate("() => navigator.clipboard.readText()")
    tab.expect("recipe = Recipe(" in copied["python"], "no Python was copied")
    again = Tab(context, copied["address"], problems)
    tab.expect(again.page.input_value("#toml") == copied["toml"] != "", "the address opened another recipe")
    kinds = page.eval_on_selector_all("#op-kind option", "(all) => all.map((one) => one.value)")
    for kind in kinds:
        again.page.select_option("#op-kind", kind)
        again.page.locator("#op-add").click()
    num_cards = again.page.locator("#controls .op").count()
    tab.expect(num_cards == 2 + len(kinds) > 50, f"{num_cards} cards of {len(kinds)} ops")
    page.locator("#measure").click()
    page.wait_for_function("() => !document.getElementById('measure').disabled", timeout=120_000)
    tab.expect("photographs a second on" in page.inner_text("#speed"), "no speed")
    context.close()


def move(browser: Browser, address: str, server: int | None, problems: list[str]) -> dict[str, Any]:
    """What 200 quick moves leave behind in the server and in the page."""
    context = browser.new_context(**LOOKS["wide"])
    tab = Tab(context, address, problems)
    session = context.new_cdp_session(tab.page)
    left = []
    for _ in range(2):
        num_asked = tab.num_asked
        tab.page.evaluate(QUICK_MOVES, [SLIDER, 200])
        tab.settle()
        session.send("HeapProfiler.collectGarbage")
        status = Path(f"/proc/{server}/status").read_text() if server is not None else ""
        known = dict(line.split(":", 1) for line in status.splitlines() if line.startswith(("Threads", "VmRSS")))
        numbers = {"page_kB": round(session.send("Runtime.getHeapUsage")["usedSize"] / 1000)}
        left.append(numbers | {name: int(text.split()[0]) for name, text in known.items()})
    tab.expect(0 < tab.num_asked - num_asked < 200, "each move asks for pictures")
    tab.expect("max_deg = 20" in tab.page.input_value("#toml"), "the last move is not shown")
    for name, most in (("page_kB", 2_000), ("VmRSS", 16_000), ("Threads", 0)):
        grown = left[1].get(name, 0) - left[0].get(name, 0)
        tab.expect(grown <= most, f"200 moves left {grown} of {name} behind")
    context.close()
    return left[1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--browser", help="left out: the one that playwright has installed")
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--server", type=int, help="its process id")
    given = parser.parse_args()
    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given.browser, args=["--no-sandbox"])
        for name in LOOKS:
            look(browser, given.address, name, given.pictures, problems)
        use(browser, given.address, problems)
        left = move(browser, given.address, given.server, problems)
        browser.close()
    print(json.dumps({"problems": problems, "left": left}))


if __name__ == "__main__":
    main()
