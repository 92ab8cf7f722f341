"""The page's texts: the same in every language, none written anywhere else, and one for every code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from askback.core.access import Action
from askback.core.errors import ErrorCode, RefusalCode, WarningCode
from askback.core.events import EventType
from askback.core.interactions import InteractionOutcome
from askback.core.runs import Mode, ProfileKind, RunState, TurnKind
from askback.engines.registry import engines
from askback.http.problems import RequestCode
from askback.web import translations
from askback.web.engines import advice, finding
from askback.wire.server import EngineProfile

WEB = Path(__file__).resolve().parents[2] / "src/askback/web"
TEMPLATES = sorted((WEB / "templates").glob("*.html"))
SCRIPTS = sorted((WEB / "static").glob("*.js"))
LANGUAGES = translations.load()


def placeholders(text: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", text))


def test_every_language_has_the_same_texts_with_the_same_places() -> None:
    english, chinese = LANGUAGES["en"].texts, LANGUAGES["zh"].texts
    assert english.keys() == chinese.keys()
    assert [key for key in english if placeholders(english[key]) != placeholders(chinese[key])] == []
    assert [key for key, text in {**english, **chinese}.items() if not text.strip()] == []


def test_every_text_is_kept_once() -> None:
    for language in LANGUAGES:
        files = sorted((WEB / "translations" / language).glob("*.json"))
        keys = [key for file in files for key in re.findall(r'^\s*"([^"]+)":', file.read_text("utf-8"), re.MULTILINE)]
        assert sorted(set(keys)) == sorted(keys)


def test_every_text_that_is_asked_for_is_there() -> None:
    asked = {
        key
        for path in (*TEMPLATES, *SCRIPTS)
        for key in re.findall(r"""\bt\(\s*["']([\w.]+)["']\s*[,)]""", path.read_text("utf-8"))
    }
    assert len(asked) > 50
    assert sorted(asked - LANGUAGES["en"].texts.keys()) == []


def test_every_value_that_is_shown_has_its_text() -> None:
    expected = [
        *(f"state.{each}" for each in RunState),
        *(f"audit.action.{each}" for each in Action),
        *(f"meaning.{each}" for each in (*ErrorCode, *WarningCode)),
        *(f"error.{each}" for each in ErrorCode),
        *(f"refusal.{each}" for each in (*RefusalCode, *RequestCode)),
        *(f"run.outcome.{each}" for each in InteractionOutcome),
        *(f"answered.outcome.{each}" for each in InteractionOutcome if each != "pending"),
        *(f"inbox.row.{each}" for each in InteractionOutcome if each != "pending"),
        *(f"run.mode.{each}" for each in Mode),
        *(f"run.profile.{each}" for each in ProfileKind),
        *(f"run.said.{each}" for each in TurnKind),
        *(f"run.ended.{each}" for each in RunState if each.final),
        *(f"run.timeline.{each}" for each in RunState if not each.final),
    ]
    missing = [(language, key) for language, t in LANGUAGES.items() for key in expected if key not in t.texts]
    assert missing == []


def test_every_advice_of_our_engines_has_its_text() -> None:
    for language, t in LANGUAGES.items():
        for engine in engines().values():
            for condition, text, command in (
                ("missing", engine.install, engine.install_command),
                ("signed_out", engine.sign_in, engine.sign_in_command),
            ):
                told = advice(engine.name, condition, text, command, t, in_fleet=False)
                assert command in text
                assert told.original is None, (language, engine.name, text)
                assert told.command or told.note
    assert advice("theirs", "missing", "ask Bob", None, LANGUAGES["zh"], in_fleet=False).original == "ask Bob"


def test_what_a_probe_saw_is_told_in_the_language_of_the_page() -> None:
    profile = EngineProfile(kind=ProfileKind.RESUMABLE, reason="its --help offers --resume", offers="--resume")
    assert finding(profile, LANGUAGES["zh"]) == "该程序提供 --resume。"
    assert finding(profile, LANGUAGES["en"]) == "The program offers --resume."
    other = EngineProfile(kind=ProfileKind.RESUMABLE, reason="something else")
    assert finding(other, LANGUAGES["zh"]) == "something else"


def test_every_chinese_text_is_chinese() -> None:
    """Apart from names, a text without a Chinese character is one that was forgotten."""
    plain = {key for key, text in LANGUAGES["zh"].texts.items() if not re.search(r"[\u4e00-\u9fff]", text)}
    assert plain == {"frame.product"} | {
        key for key in plain if re.fullmatch(r"\W*(\{\w+\}\W*)+", LANGUAGES["zh"].texts[key])
    }


def test_the_page_listens_to_every_kind_of_event() -> None:
    (types,) = re.findall(r"const TYPES = \[(.*?)\];", (WEB / "static/run.js").read_text(), re.DOTALL)
    assert set(re.findall(r'"([\w.]+)"', types)) == set(EventType)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_no_words_of_its_own(path: Path) -> None:
    text = path.read_text("utf-8")
    text = re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|<(script|style|code)\b.*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL)
    assert re.findall(r"[^\W\d_]{2,}", text) == []
    attributes = re.findall(r'\b(?:title|alt|placeholder|aria-label)="([^"{]*[^\W\d_][^"{]*)"', path.read_text("utf-8"))
    assert attributes == []


@pytest.mark.parametrize(
    ("cookie", "accepted", "chosen"),
    [
        (None, "", "en"),
        (None, "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        (None, "fr,en;q=0.5,zh;q=0.7", "zh"),
        (None, "de, *;q=0.1", "en"),
        (None, "zh;q=0, en;q=0.1", "en"),
        (None, "zh;q=much", "en"),
        ("zh", "en", "zh"),
        ("klingon", "zh", "zh"),
    ],
)
def test_the_language_is_the_chosen_one_or_the_one_liked_best(cookie: str | None, accepted: str, chosen: str) -> None:
    assert translations.choose(cookie, accepted) == chosen


def test_everything_that_the_page_needs_is_in_the_wheel() -> None:
    shipped = {Path(each.path) for each in WheelBuilder(str(WEB.parents[2])).recurse_included_files()}
    needed = {
        path for path in WEB.rglob("*") if path.is_file() and path.suffix in (".html", ".css", ".js", ".svg", ".json")
    }
    assert len(needed) > 30
    assert needed - shipped == set()
