"""Load every page of the site in headless Chromium, wide and at 400 px, light and dark; print what is wrong as JSON.

usage: python tests/docs/browse.py SITE [PAGE ...] [--browser PATH] [--pictures FOLDER]
"""

import argparse
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, sync_playwright

LOOKS: dict[str, dict[str, Any]] = {
    "wide": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "narrow": {"viewport": {"width": 400, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "narrow-dark": {"viewport": {"width": 400, "height": 800}, "color_scheme": "dark"},
}
SERIOUS = ("serious", "critical")
FEWEST_PASSES = 10
"""A page of the site passes more of axe's rules than this; one that did not load passes a few."""


class Quiet(SimpleHTTPRequestHandler):
    """Files, without a line for each."""

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def served(site: Path) -> Iterator[str]:
    """The site's address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def problems(browser: Browser, address: str, pages: list[str], look: str, pictures: Path | None) -> Iterator[str]:
    """Errors, requests to elsewhere, violations that axe calls serious, and pages that are wider than the window."""
    context = browser.new_context(**LOOKS[look], reduced_motion="reduce")
    tab = context.new_page()
    found: list[str] = []
    tab.on("pageerror", lambda error: found.append(f"error: {error}"))
    tab.on("console", lambda line: found.append(f"console: {line.text}") if line.type == "error" else None)
    tab.on("request", lambda asked: None if asked.url.startswith((address, "data:")) else found.append(asked.url))
    for page in pages:
        tab.goto(f"{address}/{page}", wait_until="load")
        looked = Axe().run(tab).response
        found += ["axe looked at little"] if len(looked["passes"]) <= FEWEST_PASSES else []
        for violation in looked["violations"]:
            if violation["impact"] in SERIOUS:
                nodes = [node["target"][0] for node in violation["nodes"]]
                found.append(f"{violation['id']}: {len(nodes)} places, {nodes[:3]}")
        beyond_px = tab.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        found += [f"{beyond_px} px wider than the window"] if beyond_px > 0 else []
        if pictures is not None:
            tab.screenshot(path=pictures / f"{page.replace('/', '-').removesuffix('.html')}-{look}.png")
        yield from (f"{page}, {look}: {problem}" for problem in found)
        found.clear()
    context.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("site", type=Path)
    parser.add_argument("pages", nargs="*")
    parser.add_argument("--browser", help="left out: the one that playwright has installed")
    parser.add_argument("--pictures", type=Path)
    given = parser.parse_args()
    pages = given.pages or sorted(str(path.relative_to(given.site)) for path in given.site.rglob("*.html"))
    with served(given.site) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given.browser, args=["--no-sandbox"])
        listed = [line for look in LOOKS for line in problems(browser, address, pages, look, given.pictures)]
        browser.close()
    print(json.dumps({"pages": len(pages), "problems": listed}))


if __name__ == "__main__":
    main()
