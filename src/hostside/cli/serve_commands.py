"""`hostside serve`. Nothing heavy is imported here: over stdio the descriptors are moved away first (C-16)."""

from pathlib import Path

from hostside.cli.output import note, plain, print_json, say


def serve_stdio(*, profile: str | None, config: Path | None) -> int:
    """Serve the client on standard input and output until it ends. Holds no credential (D6)."""
    from hostside.edges.descriptors import move_away

    wire = move_away()
    import os

    import uvloop

    from hostside.app.host import App
    from hostside.app.server_records import profile_within
    from hostside.app.serving import serve_one_client, without_credentials
    from hostside.cli.tool_commands import settings_of

    chosen = profile_within(profile or "readonly", "full")
    settings = without_credentials(settings_of(config))

    async def work() -> None:
        with App.open(config=config, environment=dict(os.environ), settings=settings) as app:
            await serve_one_client(app, profile=chosen, folder=Path.cwd(), read_fd=wire.read_fd, write_fd=wire.write_fd)

    uvloop.run(work())
    return 0


def serve_http(text: str, *, profile: str | None, allow_remote: bool, as_json: bool, config: Path | None) -> int:
    """Serve HTTP until a signal comes."""
    import uvloop

    from hostside.app.host import App
    from hostside.app.server_records import ServerRecord, parse_address, profile_within
    from hostside.app.serving import serve_everyone

    address = parse_address(text)
    chosen = profile_within(profile or "readonly", "full")

    def ready(server: ServerRecord) -> None:
        if as_json:
            facts = {"server_id": server.server_id, "url": server.url, "profile": server.profile}
            print_json({"ok": True, **facts, "remote": server.remote})
            return
        say(plain(f"serving {server.url} · profile {server.profile} · server {server.server_id}"))
        note("open a session for a client: hostside sessions open   ·   Ctrl-C ends")
        if server.remote:
            note("other machines can connect: put a proxy with TLS in front; sessions reach no disk")

    async def work() -> None:
        with App.open(config=config) as app:
            await serve_everyone(app, address, profile=chosen, allow_remote=allow_remote, ready=ready)

    uvloop.run(work())
    return 0
