"""`hostside workflow show|trust`."""

import os
from pathlib import Path
from typing import Any

from hostside.app.host import utc_now
from hostside.cli.output import fields, note, plain, print_json, say
from hostside.cli.stopping import DONE
from hostside.config.host import load_settings
from hostside.config.paths import host_paths
from hostside.config.trust import TrustStore
from hostside.config.workflow import Workflow, parse_workflow, read_workflow, workflow_digest

_SECTIONS = ("tracker", "hooks", "agent", "codex", "claude")


def show(file: Path, *, as_json: bool, config: Path | None) -> int:
    """Print what a workflow comes to here. Raises ConfigError where it cannot be read."""
    found = _read(file, config)[0]
    if as_json:
        print_json(_as_object(file, found))
        return DONE
    state = "trusted" if found.trusted else "not trusted"
    say(plain(f"{file} · {state} · sha256 {found.sha256}"))
    for section, values in _used(found).items():
        for line in fields({f"{section}.{key}": _words(value) for key, value in values.items() if value is not None}):
            say("  " + line)
    say(f"prompt    {len(found.prompt)} characters" if found.prompt else "prompt    none: a short one is used")
    for notice in found.notices():
        note(plain(notice))
    if found.ignored:
        note(plain(f"  try: read it, then `hostside workflow trust {file}`"))
    return DONE


def trust(file: Path, *, as_json: bool, config: Path | None) -> int:
    """Trust the content of a file from now on. It has to be usable. Raises ConfigError."""
    before, raw, store = _read(file, config)
    store.trust(before.sha256, source=str(file.absolute()), at=utc_now())
    # What was read is what is trusted: the file is not read again.
    found = parse_workflow(raw, trusted=True)
    keys = list(found.guarded)
    if as_json:
        print_json({"ok": True, "file": str(file), "sha256": found.sha256, "trusted": True, "keys": keys})
        return DONE
    say(plain(f"trusted {file} · sha256 {found.sha256}"))
    say(plain(f"works now: {', '.join(keys)}" if keys else "it sets no key that needs trust"))
    note("any change of the file is other content and has to be trusted again")
    return DONE


def _read(file: Path, config: Path | None) -> tuple[Workflow, bytes, TrustStore]:
    paths = host_paths(os.environ, config=config)
    limits = load_settings(paths.config_file).workflow_limits()
    store = TrustStore(paths.trust)
    raw = read_workflow(file)
    return parse_workflow(raw, trusted=store.is_trusted(workflow_digest(raw)), limits=limits), raw, store


def _as_object(file: Path, found: Workflow) -> dict[str, Any]:
    return {
        "file": str(file),
        "sha256": found.sha256,
        "trusted": found.trusted,
        "used": _used(found),
        "ignored": list(found.ignored),
        "capped": list(found.capped),
        "unused": list(found.unused),
        "unknown": list(found.unknown),
        "guarded": dict(found.guarded),
        "literal_secret": found.literal_secret,
        "notices": list(found.notices()),
        "prompt": found.prompt,
    }


def _used(found: Workflow) -> dict[str, dict[str, Any]]:
    return {name: getattr(found, name).model_dump(mode="json") for name in _SECTIONS}


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
