"""A headless Chromium that is told what to do over a pipe (the DevTools protocol), and tells what its page does."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from harness import LONGEST_SECONDS


class Browser:
    """One page of it."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._rest, self._n = to, back, b"", 0
        self._session = ""
        #: Events so far: what was requested, and said on the console.
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Network", "Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **values: Any) -> Any:
        """Call a method of the protocol; what it returns."""
        self._n += 1
        message = {"id": self._n, "method": method, "params": values}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._n:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._back], [], [], LONGEST_SECONDS)
            assert ready, f"the browser says nothing; last: {self.events[-3:]}"
            block = os.read(self._back, 1 << 16)
            assert block, "the browser has ended"
            self._rest += block
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def value(self, expression: str) -> Any:
        """What an expression is in the page; a promise is waited for."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until something is so in the page."""
        shown = "document.documentElement.outerHTML.length + ' ' + document.body.innerText.slice(0, 3000)"
        late = f"Date.now() - begun > {LONGEST_SECONDS * 1000}"
        look = f"() => {{ if ({condition}) done(''); else if ({late}) done({shown}); else setTimeout(look, 50); }}"
        waiting = f"const begun = Date.now(), look = {look}; look();"
        last = self.value(f"new Promise(done => {{ {waiting} }})")
        assert not last, f"not so in the page: {condition}; it shows: {last}"

    def count_coloured(self, chart: str) -> int:
        """How many pixels of a chart are neither background nor grey, as axes and their words are."""
        return int(
            self.value(f"""(() => {{
                const canvas = document.querySelector("#{chart} canvas"), {{width, height}} = canvas;
                const all = canvas.getContext("2d").getImageData(0, 0, width, height).data;
                let n = 0;
                for (let i = 0; i < all.length; i += 4)
                    n += all[i + 3] > 20 && Math.max(all[i], all[i + 1], all[i + 2]) - Math.min(all[i], all[i + 1], all[i + 2]) > 40;
                return n;
            }})()""")
        )

    def move_mouse(self, place: str, x: float, y: float, kind: str = "mouseMoved", clicks: int = 0) -> None:
        """Move the mouse, or press and release its button, at a place (shares of width and height) in an element."""
        find = f"document.querySelector({json.dumps(place)})"
        left, top, width, height = self.value(
            f"{find}.scrollIntoView({{block: 'center'}}), (at => [at.left, at.top, at.width, at.height])({find}.getBoundingClientRect())"
        )
        button = "none" if kind == "mouseMoved" else "left"
        self.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=left + x * width,
            y=top + y * height,
            button=button,
            clickCount=clicks,
        )

    @property
    def requested(self) -> list[str]:
        """Addresses that the page has asked for."""
        return [
            each["params"]["request"]["url"]
            for each in self.events
            if each.get("method") == "Network.requestWillBeSent"
        ]

    @property
    def complaints(self) -> list[str]:
        """What was said on the console, or thrown."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(each) for each in self.events if each.get("method") in kinds]


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser, until the context is left; no name but this machine's leads anywhere."""
    theirs, to = os.pipe()
    back, ours = os.pipe()
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
        "--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--remote-debugging-pipe",
    ]  # fmt: skip
    line = ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{ours}', "bash", *command]
    process = subprocess.Popen(
        line, pass_fds=(theirs, ours), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    for end in (theirs, ours):
        os.close(end)
    try:
        yield Browser(to, back)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for end in (to, back):
            os.close(end)
