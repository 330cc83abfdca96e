"""How long after a slider was moved the live page shows new pictures: twelve draws of 224x224 pixels.

Over HTTP, until the twelve JPEGs are there; and in headless Chromium, from the slider's event until all twelve are
decoded, where playwright is installed and $AUGPIPE_BROWSER names the browser, as /usr/bin/chromium.
"""

import base64
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any

from augpipe import recipes
from benchmarks.harness import Bench, spread

NUM_MOVES, PER_PHOTOGRAPH = 50, 10
DEGREES = range(1, 21)
RECIPES = {"deep_image": 3, "three_augment": None, "rand_augment": None}
"""By name: the place of its Rotate; None moves the smallest area of its crop, the first op."""
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


@contextmanager
def served(folder: Any, name: str) -> Iterator[str]:
    """The address of the page of a recipe."""
    command = [sys.executable, "-m", "augpipe", "preview", str(folder), "--serve", "--recipe", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def over_http(address: str, name: str, num: int) -> list[float]:
    """Seconds of each move."""
    recipe = recipes.BY_NAME[name]().model_dump(mode="json")
    _, _, host, token, _ = address.split("/")
    took = []
    for move in range(-5, num):  # the first ones compile and are not counted
        _set(recipe, name, DEGREES[move % len(DEGREES)])
        body = json.dumps({"recipe": recipe, "samples": [max(move, 0) // PER_PHOTOGRAPH]})
        began = time.perf_counter()
        connection = HTTPConnection(host, timeout=600)
        connection.request("POST", f"/{token}/pictures", body, {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        content = [base64.b64decode(picture["after"]["image"].partition(",")[2]) for picture in answer["pictures"]]
        took.append(time.perf_counter() - began)
        assert len(content) == 12 and all(picture["after"]["width"] == 224 for picture in answer["pictures"])
    return took[5:]


def _set(recipe: dict[str, Any], name: str, degrees: int) -> None:
    place = RECIPES[name]
    if place is None:
        recipe["ops"][0]["scale"][0] = degrees / 100
    else:
        recipe["ops"][place]["max_deg"] = degrees


def in_browser(address: str, name: str, num: int) -> list[float]:
    """Seconds of each move."""
    from playwright.sync_api import sync_playwright

    place = RECIPES[name]
    slider = "op-0-scale-0" if place is None else f"op-{place}-max_deg"
    took = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ["AUGPIPE_BROWSER"], args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(address)
        page.wait_for_function("() => document.body.dataset.shown >= 1", timeout=600_000)
        for move in range(-5, num):
            if move % PER_PHOTOGRAPH == 0:
                page.locator("#photographs button").nth(move // PER_PHOTOGRAPH).click()
                page.wait_for_timeout(500)
                page.wait_for_load_state("networkidle")
            degrees = DEGREES[move % len(DEGREES)]
            took.append(page.evaluate(MOVE, [slider, degrees / 100 if place is None else degrees]) / 1000)
        browser.close()
    return took[5:]


def main() -> None:
    bench = Bench(__doc__, names=RECIPES)
    has_browser = importlib.util.find_spec("playwright") is not None and "AUGPIPE_BROWSER" in os.environ
    ways = {"over HTTP": over_http} | ({"in Chromium": in_browser} if has_browser else {})
    found: dict[str, Any] = {}
    with bench.files() as (folder, origin):
        for name in bench.names:
            with served(folder, name) as address:
                for way, moves in ways.items():
                    took = moves(address, name, bench.pick(NUM_MOVES, 2))
                    within = sum(one < 0.2 for one in took) / len(took)
                    found[f"{name}, {way}"] = spread(took, 1e3) | {"share within 200 ms": round(within, 2)}
                    print(f"  {name}, {way}: {1e3 * statistics.median(took):.0f} ms", flush=True)
    bench.keep(
        "live_page",
        {
            "what": "milliseconds from a moved slider to twelve pictures of 224x224 pixels (goal: median under 200)",
            "images": origin,
            "moves": bench.pick(NUM_MOVES, 2),
            "milliseconds": found,
        },
    )


if __name__ == "__main__":
    main()
