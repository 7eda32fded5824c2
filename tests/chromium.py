"""A headless Chromium for the browser tests, driven through its DevTools protocol over a pipe."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-dev-shm-usage", "--mute-audio", "--force-device-scale-factor=1", "--remote-debugging-pipe",
)  # fmt: skip
# Chromium reads commands from descriptor 3 and answers on 4; both are moved out of the way first.
LAUNCH = (
    "import fcntl, os, sys; away = [fcntl.fcntl(int(i), fcntl.F_DUPFD, 10) for i in sys.argv[1:3]]; "
    "os.dup2(away[0], 3); os.dup2(away[1], 4); os.execv(sys.argv[3], sys.argv[3:])"
)
PATIENCE = 60.0


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser process; `open` gives a page in it."""

    def __init__(self, program: str, profile: Path) -> None:
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        command = [sys.executable, "-c", LAUNCH, str(theirs_in), str(theirs_out), program, *FLAGS]
        self.process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out, self._rest, self._last = ours_in, ours_out, b"", 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send a command and return its result; events that come first are kept."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self._read(deadline, method)
            if answer.get("id") != self._last:
                self.events.append(answer)
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            return dict(answer["result"])

    def open(self, url: str, *, width: int = 1200, height: int = 900, dark: bool = False) -> Page:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, target, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.size(width, height)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        page.call("Emulation.setEmulatedMedia", features=scheme)
        page.call("Page.navigate", url=url)
        page.wait("document.readyState === 'complete' && document.documentElement.dataset.ready === 'true'")
        return page

    def close(self) -> None:
        try:
            self.call("Browser.close")
            self.process.wait(10)
        except (RuntimeError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self._in)
        os.close(self._out)

    def _read(self, deadline: float, method: str) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self._in, 1 << 20) if ready else b""
            if not chunk:
                raise RuntimeError(f"{method}: the browser {'closed' if ready else 'did not answer'}")
            self._rest += chunk
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))


class Page:
    """One page of the browser."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self.browser, self.target, self.session = browser, target, session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def run(self, script: str) -> Any:
        """Return the value of an expression, of a promise what it promised."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script[:200]}: {answer['exceptionDetails']['exception'].get('description')}")
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.run(condition):
            if time.monotonic() > deadline:
                raise RuntimeError(f"never true: {condition}")
            time.sleep(0.02)

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def size(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(picture["data"]))

    def happened(self, *methods: str) -> list[dict[str, Any]]:
        """Return the events of this page by their names."""
        own = [event for event in self.browser.events if event.get("sessionId") == self.session]
        return [event["params"] for event in own if event["method"] in methods]

    def complaints(self) -> list[str]:
        """Return what the page printed or threw, and every address it asked for beside its own and data in itself."""
        printed = self.happened("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        asked = [event["request"]["url"] for event in self.happened("Network.requestWillBeSent")]
        strange = [url for url in asked[1:] if not url.startswith(("data:", "blob:"))]
        return [json.dumps(event)[:500] for event in printed] + strange

    def close(self) -> None:
        self.browser.call("Target.closeTarget", targetId=self.target)
