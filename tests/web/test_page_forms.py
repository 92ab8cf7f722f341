"""Forms made from JSON Schemas: what is filled in comes out as the right JSON, and mistakes are told beside the field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from site_pages import FurnishedServer, signed_in

_MOUNT = """async ([schema, given]) => {
    const { schemaForm } = await import("/static/form.js");
    const { t } = await import("/static/translations.js");
    window.made = schemaForm(schema, { t, root: "input", given: given ?? undefined });
    document.getElementById("main").replaceChildren(window.made.element);
}"""
_ASK = """async (interaction) => {
    const { questionForm } = await import("/static/form.js");
    const { t } = await import("/static/translations.js");
    window.sent = [];
    window.refuse = null;
    const onSend = async (response) => {
        window.sent.push(response);
        await new Promise((resolve) => (window.go = resolve));
        if (window.refuse !== null) throw Object.assign(new Error(window.refuse.message), window.refuse);
    };
    document.getElementById("main").replaceChildren(questionForm(interaction, { t, onSend }));
}"""


@pytest.fixture(scope="module")
def blank(furnished_server: FurnishedServer, browser: Browser) -> Iterator[Page]:
    """A page that has the words and styles of a form, for forms of our own; each test puts its own there."""
    with signed_in(furnished_server, browser) as site:
        yield site.open("/new?skill=plain")


def mount(page: Page, schema: dict[str, Any], given: Any = None) -> None:
    page.evaluate(_MOUNT, [schema, given])


def form_value(page: Page) -> Any:
    return page.evaluate("window.made.value()")


def problems(page: Page) -> list[str]:
    return list(page.evaluate("window.made.problems()"))


def field(schema: dict[str, Any], *, required: bool = False) -> dict[str, Any]:
    return {"type": "object", "properties": {"it": schema}, "required": ["it"] if required else []}


SEVEN = ["a", "b", "c", "d", "e", "f", "g"]
TEXT, NUMBER, DATE, ZONED = {"type": "string"}, {"type": "number"}, "2026-03-01", "2026-03-01T09:30"
STOPS = {"type": "array", "items": {"type": "string"}}

TYPED: dict[str, tuple[dict[str, Any], str, Any]] = {
    "text": (TEXT, "São Paulo <b>", "São Paulo <b>"),
    "long text": ({"type": "string", "maxLength": 500}, "two\nlines", "two\nlines"),
    "e-mail": ({"type": "string", "format": "email"}, "a@b.example", "a@b.example"),
    "address": ({"type": "string", "format": "uri"}, "https://example.com/x", "https://example.com/x"),
    "date": ({"type": "string", "format": "date"}, DATE, DATE),
    "moment": ({"type": "string", "format": "date-time"}, ZONED, "2026-03-01T09:30:00Z"),
    "whole number": ({"type": "integer"}, "-12", -12),
    "number": (NUMBER, "0.25", 0.25),
    "text or null": ({"type": ["string", "null"]}, "x", "x"),
    "number or null": ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "7", 7),
    "a list": (STOPS, "one", ["one"]),
    "JSON": ({"description": "whatever"}, '{"a": [1, null]}', {"a": [1, None]}),
    "object without names": ({"type": "object"}, '{"b": true}', {"b": True}),
    "list of what is not known": ({"type": "array"}, "[1, 2]", [1, 2]),
}


@pytest.mark.parametrize("name", TYPED)
def test_what_is_typed_comes_out_as_the_right_json(blank: Page, name: str) -> None:
    schema, typed, wanted = TYPED[name]
    mount(blank, field(schema, required=True))
    assert problems(blank) == ["This field is required."]
    blank.locator("#main input, #main textarea").first.fill(typed)
    assert (form_value(blank), problems(blank)) == ({"it": wanted}, [])


CHOSEN: dict[str, tuple[dict[str, Any], list[str], Any]] = {
    "of few": ({"enum": ["low", "high"]}, ["high"], "high"),
    "of numbers": ({"enum": [1, 2, None]}, ["2"], 2),
    "by title": ({"oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]}, ["Green"], "g"),
    "by name": ({"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]}, ["Red"], "r"),
    "several": ({"type": "array", "items": {"enum": ["a", "b", "c"]}}, ["a", "c"], ["a", "c"]),
    "several by title": ({"type": "array", "items": {"anyOf": [{"const": "x", "title": "X it"}]}}, ["X it"], ["x"]),
    "yes": ({"type": "boolean"}, ["It"], True),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_what_is_chosen_comes_out_as_the_right_json(blank: Page, name: str) -> None:
    schema, labels, wanted = CHOSEN[name]
    mount(blank, field(schema))
    assert form_value(blank) == {}
    for label in labels:
        blank.get_by_label(label, exact=True).check()
    assert (form_value(blank), problems(blank)) == ({"it": wanted}, [])


def test_many_choices_are_a_list_that_opens(blank: Page) -> None:
    mount(blank, field({"enum": SEVEN}, required=True))
    assert problems(blank) == ["Please choose one."]
    blank.get_by_role("combobox").select_option(label="f")
    assert form_value(blank) == {"it": "f"}


def test_an_object_with_references_lists_and_defaults_comes_out_whole(blank: Page) -> None:
    place = {"type": "object", "required": ["name"], "properties": {"name": TEXT, "nights": {"type": "integer"}}}
    schema = {
        "$defs": {"place": place},
        "type": "object",
        "required": ["start", "sure"],
        "properties": {
            "start": {"$ref": "#/$defs/place"},
            "then": {"type": "array", "items": {"$ref": "#/$defs/place"}},
            "left_out": {"$ref": "#/$defs/place"},
            "pace": {"enum": ["slow", "fast"], "default": "slow"},
            "sure": {"type": "boolean"},
            "people": {"type": "integer", "default": 2},
        },
    }
    mount(blank, schema)
    assert problems(blank) == ["This field is required."]
    start = blank.get_by_role("group", name="Start")
    start.get_by_label("Name").fill("Lisbon")
    blank.get_by_role("button", name="Add item").click()
    blank.keyboard.type("Porto")
    blank.keyboard.press("Tab")
    blank.keyboard.type("2")
    assert problems(blank) == []
    assert form_value(blank) == {
        "start": {"name": "Lisbon"},
        "then": [{"name": "Porto", "nights": 2}],
        "pace": "slow",
        "sure": False,
        "people": 2,
    }


def test_lines_of_a_list_are_added_and_removed_by_the_keyboard(blank: Page) -> None:
    mount(blank, field(STOPS | {"uniqueItems": True, "minItems": 2}))
    first = blank.get_by_label("It, item 1", exact=True)
    first.fill("one")
    first.press("Enter")
    blank.keyboard.type("one")
    assert problems(blank) == ["The same item occurs twice."]
    blank.get_by_role("button", name="Remove item 2").press("Enter")
    assert problems(blank) == ["At least 2 items are required."]
    expect(first).to_be_focused()
    assert form_value(blank) == {"it": ["one"]}


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "short": ({"type": "string", "minLength": 3}, "ab", "Too short: at least 3 characters are required, this has 2."),
    "long": ({"type": "string", "maxLength": 2}, "a🙂c", "Too long: at most 2 characters are allowed, this has 3."),
    "pattern": ({"type": "string", "pattern": "^[a-z]+$"}, "A1", "required pattern: ^[a-z]+$"),
    "e-mail": ({"type": "string", "format": "email"}, "a@", "not an e-mail address"),
    "address": ({"type": "string", "format": "uri"}, "example", "not a complete URL"),
    "integer": ({"type": "integer"}, "1.5", "A whole number is required."),
    "minimum": ({"type": "integer", "minimum": 1}, "0", "Must be 1 or more."),
    "maximum": ({"type": "number", "maximum": 1.5}, "2", "Must be 1.5 or less."),
    "exclusive": ({"type": "number", "exclusiveMinimum": 0}, "0", "Must be greater than 0."),
    "multiple": ({"type": "number", "multipleOf": 0.1}, "0.25", "Must be a multiple of 0.1."),
    "too large": ({"type": "integer"}, "12345678901234567890", "too large to be stored exactly"),
    "JSON": ({}, "{a}", "This is not valid JSON:"),
    "JSON type": ({"type": "object"}, "[]", "A JSON object is required"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_beside_the_field_and_has_the_focus(blank: Page, name: str) -> None:
    schema, typed, told = WRONG[name]
    mount(blank, field(schema))
    box = blank.locator("#main input, #main textarea").first
    box.fill(typed)
    assert blank.evaluate("window.made.check()") is False
    assert box.get_attribute("aria-invalid") == "true"
    expect(box).to_be_focused()
    expect(box).to_have_accessible_description(re.compile(re.escape(told)))
    box.fill("")
    expect(box).not_to_have_attribute("aria-invalid", "true")


def test_half_a_number_is_not_taken_for_none(blank: Page) -> None:
    mount(blank, field({"type": "number"}))
    blank.get_by_label("It").press_sequentially("1e")
    assert problems(blank) == ["This is not a number."]


def test_what_the_server_says_is_put_beside_the_fields_it_names(blank: Page) -> None:
    inner = {"type": "object", "properties": {"a b": TEXT}}
    mount(
        blank,
        {"type": "object", "properties": {"days": NUMBER, "list": {"type": "array", "items": inner}}},
        {"list": [{}]},
    )
    found = [
        {"path": ["input", "days"], "message": "0 is less than 1"},
        {"path": ["input", "list", 0, "a b"], "message": "is empty"},
        {"path": ["parameter", "x"], "message": "is unknown"},
        {"path": ["input"], "message": "odd"},
    ]
    left = blank.evaluate("(found) => window.made.place(found)", found)
    assert left == [{"path": ["parameter", "x"], "message": "is unknown"}]
    expect(blank.get_by_label("Days")).to_have_accessible_description("0 is less than 1")
    expect(blank.get_by_label("A b")).to_have_accessible_description("is empty")
    expect(blank.get_by_text("odd", exact=True)).to_be_visible()


# Answers.


def ask(page: Page, **interaction: Any) -> None:
    whole = {"interaction_id": "q", "kind": "text", "prompt": "Well?", "options": [], "default": None}
    page.evaluate(_ASK, whole | {"response_schema": None, "context": None} | interaction)


def sent(page: Page) -> Any:
    return page.evaluate("window.sent")


def let_go(page: Page, refuse: dict[str, Any] | None = None) -> None:
    page.evaluate("(refuse) => { window.refuse = refuse; window.go(); }", refuse)


OPTIONS = [{"label": "Red", "value": "r"}, {"label": "Two", "value": 2, "description": "A number"}, "plain", True]


@pytest.mark.parametrize(("label", "value"), [("Red", "r"), ("Two", 2), ("plain", "plain"), ("true", True)])
def test_one_click_on_an_option_sends_its_value(blank: Page, label: str, value: Any) -> None:
    ask(blank, kind="choice", options=OPTIONS, default=2)
    expect(blank.get_by_role("button", name="Two")).to_contain_text("Suggested")
    blank.get_by_role("button", name=label).click()
    assert sent(blank) == [value]
    let_go(blank)
    expect(blank.get_by_role("status").filter(has_text="Sent.")).to_be_visible()


def test_enter_sends_and_shift_enter_begins_a_line(blank: Page) -> None:
    ask(blank)
    box = blank.get_by_role("textbox", name="Well?")
    box.press("Enter")
    expect(box).to_have_accessible_description("Please enter an answer.")
    box.press_sequentially("one")
    box.press("Shift+Enter")
    box.press_sequentially("two")
    box.press("Enter")
    assert sent(blank) == ["one\ntwo"]


def test_an_enter_that_ends_a_word_of_an_input_method_sends_nothing(blank: Page) -> None:
    ask(blank)
    box = blank.get_by_role("textbox", name="Well?")
    box.fill("你")
    composing = "(box) => box.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', isComposing: true}))"
    box.evaluate(composing)
    assert sent(blank) == []


def test_an_answer_cannot_be_sent_twice(blank: Page) -> None:
    ask(blank, options=["a", "b"])
    first, second = blank.get_by_role("button", name="a", exact=True), blank.get_by_role("button", name="b", exact=True)
    blank.evaluate("() => document.querySelectorAll('.option').forEach((each) => { each.click(); each.click(); })")
    assert sent(blank) == ["a"]
    expect(first).to_be_disabled()
    let_go(blank)
    expect(second).to_be_disabled()
    assert sent(blank) == ["a"]


def test_a_refused_answer_stays_where_it_was_and_can_be_sent_again(blank: Page) -> None:
    ask(blank)
    box = blank.get_by_role("textbox", name="Well?")
    box.fill("mine")
    blank.get_by_role("button", name="Send").click()
    let_go(blank, {"message": "The server is away.", "status": 503})
    expect(blank.get_by_role("alert")).to_have_text("The server is away.")
    expect(box).to_have_value("mine")
    blank.get_by_role("button", name="Send").click()
    assert sent(blank) == ["mine", "mine"]


def test_a_question_that_was_settled_elsewhere_says_so_kindly(blank: Page) -> None:
    ask(blank, options=["a"])
    blank.get_by_role("button", name="a", exact=True).click()
    let_go(blank, {"message": "conflict", "status": 409, "code": "INTERACTION_NOT_PENDING"})
    expect(blank.get_by_role("alert")).to_contain_text("already closed")
    expect(blank.get_by_role("button", name="a", exact=True)).to_be_disabled()


def test_an_answer_by_fields_is_checked_sent_whole_and_told_by_field(blank: Page) -> None:
    schema = {"type": "object", "properties": {"when": {"type": "string", "format": "date"}, "n": {"type": "integer"}}}
    ask(blank, response_schema=schema | {"required": ["when"]}, default={"n": 3})
    send = blank.locator(".answer-fields").get_by_role("button", name="Send")
    send.click()
    assert sent(blank) == []
    blank.get_by_label("When").fill(DATE)
    send.click()
    assert sent(blank) == [{"when": DATE, "n": 3}]
    found = {"path": ["response", "n"], "message": "3 is more than 2", "line": "response.n: 3 is more than 2"}
    let_go(blank, {"message": "no", "status": 422, "problems": [found]})
    expect(blank.get_by_label("N", exact=False).first).to_be_enabled()
    expect(blank.get_by_text("3 is more than 2")).to_be_visible()
    expect(blank.get_by_text("Answer in your own words")).to_have_count(0)


@pytest.mark.contract("T-2")
def test_a_scalar_schema_is_one_field_or_two_buttons(blank: Page) -> None:
    ask(blank, response_schema={"type": "string", "enum": ["red", "blue"]}, default="blue")
    expect(blank.get_by_label("blue")).to_be_checked()
    blank.get_by_label("red").check()
    blank.get_by_role("button", name="Send").click()
    assert sent(blank) == ["red"]
    ask(blank, response_schema={"type": "integer", "minimum": 2})
    box = blank.get_by_label("Your answer")
    box.fill("1")
    box.press("Enter")
    assert sent(blank) == []
    box.fill("2")
    box.press("Enter")
    assert sent(blank) == [2]
    ask(blank, kind="confirm", response_schema={"type": "boolean"})
    blank.get_by_role("button", name="No").click()
    assert sent(blank) == [False]
    ask(blank, kind="secret", response_schema={"type": "string", "minLength": 4})
    assert blank.get_by_label("Your answer").get_attribute("type") == "password"
    ask(blank, options=["r", "b"], response_schema={"type": "string", "enum": ["r", "b"]})
    blank.get_by_role("button", name="r", exact=True).click()
    assert sent(blank) == ["r"]


def test_a_secret_is_not_shown_and_is_sent_as_typed(blank: Page) -> None:
    ask(blank, kind="secret")
    box = blank.get_by_role("textbox", name="Well?")
    assert box.get_attribute("type") == "password"
    box.fill(" pass word ")
    box.press("Enter")
    assert sent(blank) == [" pass word "]


def test_a_yes_or_no_question_has_two_buttons(blank: Page) -> None:
    ask(blank, kind="confirm")
    blank.get_by_role("button", name="Yes").click()
    assert sent(blank) == ["yes"]


def test_a_file_as_an_answer_is_uploaded_and_named(blank: Page) -> None:
    ask(blank, kind="file")
    button = blank.locator(".answer-fields").get_by_role("button", name="Send")
    button.click()
    expect(blank.get_by_text("A file is required.")).to_be_visible()
    blank.get_by_label("File").set_input_files({"name": "a.txt", "mimeType": "text/plain", "buffer": b"hello"})
    expect(blank.get_by_text("a.txt, 5 B")).to_be_visible()
    button.click()
    [answer] = sent(blank)
    assert list(answer) == ["upload_id"]


def test_texts_of_others_are_shown_as_they_are(blank: Page) -> None:
    evil = "<img src=x onerror=document.title='owned'>"
    hostile = {"title": evil, "description": evil, "enum": [evil, "b"]}
    schema = {"type": "object", "properties": {evil: hostile, "x": TEXT | {"default": evil}}}
    mount(blank, json.loads(json.dumps(schema)))
    blank.evaluate("window.made.check()")
    ask(blank, prompt=evil, options=[evil, {"label": evil, "value": 1, "description": evil}])
    assert blank.locator("#main img").count() == 0
    assert "owned" not in blank.title()
