"""The table of the programs that speak ACP and have a preset, with what the tests have shown of each."""

from __future__ import annotations

from askback.engines import registry
from askback.engines.acp import AcpEngine


def page() -> str:
    presets = [engine for engine in registry.engines().values() if isinstance(engine, AcpEngine)]
    lines = [
        "# ACP agents with a preset",
        "",
        "These programs speak the Agent Client Protocol, and need no settings but to be installed: `askback run SKILL --engine NAME`.",
        "The tests show of each, with the real program: it asks, is killed, and a new process continues the session, in which",
        "the model sees the whole conversation once; a session that it does not know is refused.",
        "[Bring your own agent](../guides/bring-your-own-agent.md) adds any other one.",
        "",
        "| engine | program | tested version | on | continues by | install | sign in | ask tool | effort |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for engine in presets:
        preset, proven = engine.preset, engine.preset.proven
        shown = (
            f"`{engine.name}`",
            f"{engine.title}: `{' '.join(preset.command)}`",
            str(proven.get("version", "none: sticky until checked")),
            str(proven.get("date", "")),
            f"`{proven['how']}`" if proven else "",
            f"`{preset.install_command}`",
            preset.sign_in,
            "yes" if preset.ask_tool else "no",
            "yes" if preset.effort else "no",
        )
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"
