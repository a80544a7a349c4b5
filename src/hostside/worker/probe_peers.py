"""The probe's attempts on whatever listens: Unix sockets, ports, the run's own edge and model port, the network.

Part of the program that runs where the agent would (`probe_program`): standard library, Python 3.9 or newer.
"""

from __future__ import annotations

import itertools
import re
import socket
from collections.abc import Iterable

from hostside.worker.probe_attempts import (
    SOCKET_SECONDS,
    Found,
    agent_keys,
    connects,
    done,
    initialize,
    lines,
    listening,
    open_port,
    read,
    received,
    request,
    routed,
    sent,
)

_UNIX_KINDS = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET)
_CONTAINERS = re.compile(r"(docker|podman|containerd|crio)[^/]*[.]sock$")
# Reserved for documentation: nobody is there.
_ELSEWHERE = ("192.0.2.1", "2001:db8::1")
_UNLISTED = ("169.254.169.254:80", "192.0.2.1:443", "tracker.example:443")


def unix_sockets(found: Found, paths: Iterable[str]) -> None:
    """Connect to every socket with a path, and to every abstract one that this network namespace shows."""
    for path in sorted({*paths, *found.plan["sockets"]}):
        if not any(connects(path, kind) for kind in _UNIX_KINDS):
            continue
        keys = agent_keys(path) if "agent" in path else None
        if keys is not None:
            found.reached("ssh_agent", path, f"lists {keys} keys and could sign with them")
        elif _CONTAINERS.search(path):
            found.reached("container_socket", path, "starts containers as the machine's root")
        else:
            found.reached("path_socket", path, "connects")
    for line in lines("/proc/net/unix"):
        name = line.split(" ")[-1]
        if name.startswith("@") and any(connects("\0" + name[1:], kind) for kind in _UNIX_KINDS):
            found.reached("abstract_socket", name[:60], "connects")


def tcp(found: Found) -> None:
    """Connect to all ports of 127.0.0.1, and to those of ::1 where something listens."""
    other = found.plan["other_edge"]
    addresses = [("127.0.0.1", port) for port in range(1, 65_536)]
    addresses += [("::1", port) for port in listening("/proc/net/tcp6")]
    for host, port in addresses:
        if not open_port((host, port)):
            continue
        if host != "127.0.0.1" or port not in (found.plan["edge"], found.plan["model"], found.plan["way_out"]):
            found.reached("other_run_edge" if port == other else "loopback_port", f"{host} port {port}", "connects")
    if other and not _refuses(other, found.plan["tokens"]["own"]):
        found.reached("other_run_accepts", f"port {other}", "uses another run's tools with this run's token")


def udp(found: Found) -> None:
    """Ask the planted service, and see what else has a port."""
    port = found.plan["udp"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
        datagram.settimeout(SOCKET_SECONDS)
        if done(datagram.sendto, b"?", ("127.0.0.1", port)) and found.canaries(received(datagram)):
            found.reached("udp_port", f"127.0.0.1 port {port}", "sends to it and reads its answer")
    for seen in listening("/proc/net/udp", state="07"):
        found.reached("udp_port", f"port {seen}", "sees it and could send to it")


def edge(found: Found) -> None:
    """Use the run's own edge with every token but its own, and as a web page of another origin would."""
    port, tokens = found.plan["edge"], dict(found.plan["tokens"])
    own = tokens.pop("own")
    status, body = initialize(port, own)
    if status == 200 and b"serverInfo" in body:
        found.surface.append(found.plan["own"][0])
    else:
        found.notes.append(f"the run's edge answered its own token with {status}")
    for name, token in [("no token", None), *tokens.items()]:
        if not _refuses(port, token):
            found.reached("edge_accepts", f"the run's edge with {name}", "uses the run's tools")
    for name, headers in (("host", {"Host": "evil.example"}), ("origin", {"Origin": "http://evil.example"})):
        if 0 < initialize(port, own, headers)[0] < 400:
            found.reached("edge_accepts", f"the run's edge under a foreign {name}", "uses the run's tools")


def model(found: Found) -> None:
    """Ask the model without its token, and lead its port to another path, host or port than the model's."""
    port, paths, decoy = found.plan["model"], found.plan["model_paths"], found.plan["tcp"]
    tokens = dict(found.plan["model_tokens"])
    own = {"Authorization": f"Bearer {tokens.pop('own')}", "Content-Type": "application/json"}
    status, body = request(port, "POST", paths[0], own, b"{}")
    if _landed(body) is not None:
        found.surface.append(found.plan["own"][1])
    else:
        found.notes.append(f"the run's model port answered its own token with {status}")
    for name, token in [("no token", None), *tokens.items()]:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        if _landed(request(port, "POST", paths[0], headers, b"{}")[1]) is not None:
            found.reached("model_accepts", f"the run's model port with {name}", "spends on the host's key")
    elsewhere = {"Host": f"127.0.0.1:{decoy}"}
    beyond = ["/", "/admin", "//admin", f"http://127.0.0.1:{decoy}/", f"{paths[0]}/..", f"{paths[0]}/%2e%2e/admin"]
    attempts = [(path, own) for path in beyond] + [(paths[0], {**own, **elsewhere})]
    for (path, headers), method in itertools.product(attempts, ("GET", "POST")):
        _, body = request(port, method, path, headers, b"")
        if found.canaries(body) or _landed(body) is not None:
            found.reached("model_port_beyond", path, "reaches more than the model's few paths")
    if found.canaries(sent(port, f"CONNECT 127.0.0.1:{decoy} HTTP/1.1\r\nHost: x\r\n\r\n".encode())):
        found.reached("model_port_beyond", "CONNECT", "reaches other addresses through the model port")


def way_out(found: Found) -> None:
    """Ask the run's way out for what no policy lists: this machine's ports, metadata services, any other name."""
    port, decoy = found.plan["way_out"], found.plan["tcp"]
    if port is None:
        return
    refused = 0
    attempts = [(f"127.0.0.1:{decoy}", "/"), (f"localhost:{decoy}", "/"), *((name, "/") for name in _UNLISTED)]
    for (name, path), method in itertools.product(attempts, ("CONNECT", "GET", "POST")):
        target = name if method == "CONNECT" else f"http://{name}{path}"
        answer = sent(port, f"{method} {target} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
        if b"X-Hostside-Code: not_listed" in answer and name.encode() in answer:
            refused += 1
        elif found.canaries(answer) or answer[9:10] in (b"2", b"3"):
            found.reached("way_out_opens", f"{method} {name}", "reaches what its policy does not list")
        else:
            found.notes.append(f"the run's way out answered {method} {name} with {answer[:60]!r}")
    if refused == len(attempts) * 3:
        found.surface.append(found.plan["own"][2])


def network(found: Found) -> None:
    """Look for interfaces, a way out, and somebody who resolves names."""
    for _, name in socket.if_nameindex():
        if name != "lo":
            found.reached("network_interface", name, "sees it")
    for address in filter(routed, _ELSEWHERE):
        found.reached("route_out", address, "has a way out of this machine")
    for server in re.findall(rb"(?m)^nameserver\s+(\S+)", read("/etc/resolv.conf") or b""):
        if routed(server.decode()):
            found.reached("dns_server", server.decode(), "sends names to it: a way out")


def _refuses(port: int, token: str | None) -> bool:
    return initialize(port, token)[0] in (0, 401, 403)


def _landed(body: bytes) -> str | None:
    """The path at which the stand-in of the model was asked, if it was."""
    match = re.search(rb'"upstream": ?"([^"]*)"', body)
    return None if match is None else match[1].decode("latin-1")
