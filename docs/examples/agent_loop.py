"""An agent loop of your own: the model's HTTP is yours, its tool calls are answered by Hostside. Three dialects, one each.

    MODEL_KEY=... python docs/examples/agent_loop.py --dialect chat --base-url http://127.0.0.1:8000/v1 --model NAME \\
        "Correct the greeting in greeting.py."
"""

import argparse
import asyncio
import os
from pathlib import Path
from typing import Any

import httpx

from hostside import FunctionEdge
from hostside.app.host import App
from hostside.app.operator_checkout import workspace_of
from hostside.app.serving import local_session
from hostside.core.policy import Profile

MAX_TURNS = 40
Json = dict[str, Any]


async def responses_loop(edge: FunctionEdge, http: httpx.AsyncClient, model: str, task: str) -> str:
    """OpenAI's Responses API: the response's items go back as they came, then one output for each call."""
    items: list[Json] = [{"role": "user", "content": task}]
    for _ in range(MAX_TURNS):
        asked = {"model": model, "instructions": edge.instructions(), "input": items, "tools": edge.tools()}
        response = await post(http, "responses", asked)
        answers = await edge.answer(response)
        if not answers:
            said = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
            return "".join(part.get("text", "") for part in said)
        items += [*response["output"], *answers]
    raise RuntimeError(f"no end after {MAX_TURNS} turns")


async def chat_loop(edge: FunctionEdge, http: httpx.AsyncClient, model: str, task: str) -> str:
    """OpenAI's Chat Completions, as many other servers speak it too: one `tool` message for each call."""
    messages: list[Json] = [{"role": "system", "content": edge.instructions()}, {"role": "user", "content": task}]
    for _ in range(MAX_TURNS):
        response = await post(http, "chat/completions", {"model": model, "messages": messages, "tools": edge.tools()})
        message = response["choices"][0]["message"]
        answers = await edge.answer(message)
        if not answers:
            return str(message["content"] or "")
        messages += [message, *answers]
    raise RuntimeError(f"no end after {MAX_TURNS} turns")


async def messages_loop(edge: FunctionEdge, http: httpx.AsyncClient, model: str, task: str) -> str:
    """Anthropic's Messages API: all results of one message go back in one user message."""
    messages: list[Json] = [{"role": "user", "content": task}]
    for _ in range(MAX_TURNS):
        asked = {"model": model, "max_tokens": 8_192, "system": edge.instructions(), "messages": messages}
        response = await post(http, "messages", {**asked, "tools": edge.tools()})
        answers = await edge.answer(response)
        if not answers:
            return "".join(block["text"] for block in response["content"] if block["type"] == "text")
        messages += [{"role": "assistant", "content": response["content"]}, {"role": "user", "content": answers}]
    raise RuntimeError(f"no end after {MAX_TURNS} turns")


LOOPS = {"responses": responses_loop, "chat": chat_loop, "messages": messages_loop}


async def post(http: httpx.AsyncClient, path: str, body: Json) -> Json:
    """Ask the model for its next turn."""
    response = await http.post(path, json=body)
    response.raise_for_status()
    answer: Json = response.json()
    return answer


def headers(dialect: str, key: str) -> dict[str, str]:
    """Return what each provider wants the key in."""
    if dialect == "messages":
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}
    return {"authorization": f"Bearer {key}"}


async def work(folder: Path, dialect: Any, base_url: str, key: str, model: str, task: str) -> str:
    """Let the model work in `folder` and return its last words. Every call is in `hostside receipts list`."""
    with App.open() as app:
        workspace = workspace_of(folder, app.paths, top_level=True)
        session = local_session(app, edge="functions", profile=Profile.WORKSPACE, workspace=workspace)
        http = httpx.AsyncClient(base_url=base_url, headers=headers(dialect, key), timeout=600, trust_env=False)
        async with session as gateway, http:
            return await LOOPS[dialect](FunctionEdge(gateway, dialect), http, model, task)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("task")
    parser.add_argument("--dialect", choices=sorted(LOOPS), required=True)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", required=True)
    given = parser.parse_args()
    key = os.environ.get("MODEL_KEY", "")
    print(asyncio.run(work(Path.cwd(), given.dialect, given.base_url, key, given.model, given.task)))
