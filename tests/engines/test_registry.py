"""Which engines there are: by file name, and by entry point, where one that is broken does not take the others along."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from askback.core.errors import Invalid, RefusalCode
from askback.engines import registry

MODULE = """
from askback.engines.scripted import Scripted

class Mine(Scripted):
    name = "mine"
    config_names = (".Mine", "mine.json")

def engine():
    return Mine()

def nothing():
    return object()

class Elsewhere(Mine):
    name = "broken"
    config_names = (".config/mine",)

def elsewhere():
    return Elsewhere()

def other_name():
    return Scripted()

PARTS = "title default_command install sign_in signed_in probe_calls read_probe launch parser handle_type handle_pattern"

# Written before there was a base class.
class Duck:
    __slots__ = ()
    name = "duck"
    profiles = frozenset()
    env_allow = config_names = credentials = ()
    chosen_by_default = False

for part in PARTS.split():
    setattr(Duck, part, getattr(Scripted, part))

def duck():
    return Duck()

def raises():
    raise RuntimeError("no licence")

def exits():
    import sys
    sys.exit(3)
"""

Offer = Callable[..., None]


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Installs a package that offers engines by entry point."""

    def install(**points: str) -> None:
        (tmp_path / "their_engines.py").write_text(MODULE)
        info = tmp_path / "their_engines-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-engines\nVersion: 1.0\n")
        lines = "\n".join(f"{name} = {value}" for name, value in points.items())
        (info / "entry_points.txt").write_text(f"[askback.engines]\n{lines}\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "their_engines", raising=False)

    return install


def test_bundled_engines_are_found_by_their_file_name() -> None:
    found = registry.engines()
    assert "scripted" in found
    for name, engine in found.items():
        assert engine.name == name
        assert list(Path(registry.__file__).parent.glob(f"{name}*"))


def test_helper_modules_are_no_engines() -> None:
    assert not {"base", "registry", "answers", "protocols", "failures"} & set(registry.engines())


def test_an_unknown_engine_is_refused_with_what_is_known_and_what_was_meant() -> None:
    with pytest.raises(Invalid) as refusal:
        registry.get("scriptd")
    assert refusal.value.code is RefusalCode.ENGINE_UNKNOWN
    assert refusal.value.message.startswith("engine 'scriptd' is unknown; known: ")
    assert refusal.value.message.endswith("; did you mean 'scripted'?")
    with pytest.raises(Invalid, match="unknown") as refusal:
        registry.get("../zzz")
    assert "did you mean" not in refusal.value.message


def test_a_known_engine_is_given() -> None:
    assert registry.get("scripted").name == "scripted"


def test_third_parties_add_engines_by_entry_point(offer: Offer) -> None:
    offer(mine="their_engines:engine")
    found = registry.engines()
    assert found["mine"].name == "mine"
    assert found.broken == {}
    assert list(found) == sorted(found)


def test_an_engine_without_the_base_class_gets_its_defaults(offer: Offer) -> None:
    offer(duck="their_engines:duck")
    found = registry.engines()
    assert found.broken == {}
    engine = found["duck"]
    assert (engine.title, engine.handle_pattern.pattern[:4]) == (registry.get("scripted").title, "ses-")
    assert (engine.warm, engine.takes_ask_tool, engine.renewals, engine.chosen_by_default) == (False, False, (), False)
    assert not engine.can_stay
    assert not engine.lists_models
    assert not engine.moves_sessions


def test_the_configuration_of_every_engine_is_known(offer: Offer) -> None:
    bundled = {".codex", ".claude", ".gemini", ".qwen", ".iflow", ".opencode", "opencode.json", "opencode.jsonc"}
    bundled |= {".copilot", ".kimi", ".kimi-code", ".grok", ".pi", ".vibe"}
    assert registry.engines().config_names == bundled
    offer(mine="their_engines:engine")
    assert registry.engines().config_names == bundled | {".mine", "mine.json"}


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("no_such_module:engine", "ModuleNotFoundError"),
        ("their_engines:no_such_name", "AttributeError"),
        ("their_engines:raises", "no licence"),
        ("their_engines:exits", "SystemExit"),
        ("their_engines:nothing", "missing name, title"),
        ("their_engines:elsewhere", "config_names: '.config/mine' is not the name of a single file or folder"),
        ("their_engines:other_name", "the engine's name is 'scripted'"),
    ],
)
def test_a_broken_engine_is_reported_and_breaks_no_other(offer: Offer, target: str, reason: str) -> None:
    offer(broken=target, mine="their_engines:engine")
    found = registry.engines()
    assert {"scripted", "mine"} <= set(found)
    assert "broken" not in found
    assert reason in found.broken["broken"]
    with pytest.raises(Invalid, match="engine 'broken' cannot be used: ") as refusal:
        found.choose("broken")
    assert reason in refusal.value.message


def test_a_bundled_engine_cannot_be_replaced(offer: Offer) -> None:
    offer(scripted="their_engines:other_name")
    found = registry.engines()
    assert type(found["scripted"]).__module__ == "askback.engines.scripted"
    assert "scripted" in found.broken


def test_looking_for_engines_imports_nothing_heavy() -> None:
    code = "import sys; from askback.engines import registry; registry.engines(); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"yaml", "asyncio", "subprocess", "msgspec", "difflib"} & set(modules)
