"""What the bot says, in each language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ENGLISH = {
    "question": "❓ {skill} has a question",
    "reminder": "⏰ Still waiting: {skill} has a question",
    "expiring": "⏰ The deadline is near: {skill} has a question",
    "succeeded": "✅ {skill} has succeeded",
    "failed": "❌ {skill} has failed",
    "canceled": "🚫 {skill} was canceled",
    "queued": "🕒 {skill} is queued",
    "running": "▶️ {skill} is running",
    "test": "🔔 Test message",
    "test_text": "Askback can reach you here. The questions of your runs will arrive like this message.",
    "run": "Run {run}",
    "cut": "[… cut: the question is too long for a message]",
    "deadline": "Answer by {at} ({left} left).",
    "late": "The deadline has passed; answer now.",
    "reply_here": "Reply to this message with your answer.",
    "or_reply": "Tap an option, or reply to this message in your own words.",
    "tap": "Tap an option, or reply to this message with one of them.",
    "kind": "Expected: {kind}.",
    "open_link": "This question is not answered in a chat. Tap “Open” to answer it.",
    "open_page": "This question is not answered in a chat. Answer it on the page of Askback.",
    "open_address": "This question is not answered in a chat. Open its address to answer it.",
    "not_here": "This question is not answered in a chat. Open it with its message, or answer it on the page of Askback.",
    "link": "Answer it here: {link}",
    "open": "Open",
    "yes": "Yes",
    "no": "No",
    "answered": "✅ Answered by {name} ({via}): {answer}",
    "answered_unshown": "✅ Answered by {name} ({via}).",
    "answered_by_nobody": "✅ Answered.",
    "auto_decided": "🤖 Nobody answered in time: the engine decides itself.",
    "expired": "⌛ The deadline has passed without an answer.",
    "canceled_by": "🚫 The run was canceled by {name} ({via}).",
    "canceled_question": "🚫 The run was canceled.",
    "abandoned": "🚫 The run has ended; the question no longer needs an answer.",
    "taken": "Your answer: {answer}",
    "first_was": "Already answered by {name} ({via}): {answer}",
    "first_was_unshown": "Already answered by {name} ({via}).",
    "gone": "This question no longer exists.",
    "wrong": "This is not a valid answer: {problems}\nThe question is still open. Reply with another answer.",
    "only_text": "An answer must be a text. Reply with a text.",
    "no_button": "This button is not known any more.",
    "not_yours": "You may not answer this question, or it no longer exists.",
    "hello": "Hello {name}. Questions arrive here as messages. Tap an option, or reply to the message.",
    "which": "To answer a question, reply to its message: hold the message, then choose “Reply”.",
    "stranger": "You may not answer questions here. Ask the administrator to add {id}.",
}
CHINESE = {
    "question": "❓ {skill} 有一个问题",
    "reminder": "⏰ 仍待回答：{skill} 有一个问题",
    "expiring": "⏰ 截止时间将至：{skill} 有一个问题",
    "succeeded": "✅ {skill} 已成功完成",
    "failed": "❌ {skill} 已失败",
    "canceled": "🚫 {skill} 已取消",
    "queued": "🕒 {skill} 正在排队",
    "running": "▶️ {skill} 正在运行",
    "test": "🔔 测试消息",
    "test_text": "Askback 可以向这里发送消息。运行中的问题会以同样的方式送达。",
    "run": "运行 {run}",
    "cut": "[……问题太长，此处已截断]",
    "deadline": "请在 {at} 之前回答（还剩 {left}）。",
    "late": "已过截止时间，请立即回答。",
    "reply_here": "请直接回复这条消息来作答。",
    "or_reply": "点选一个选项，或回复这条消息用自己的话作答。",
    "tap": "点选一个选项，或回复这条消息写明其中一项。",
    "kind": "应填：{kind}。",
    "open_link": "此问题不能在聊天中回答，请点“打开”作答。",
    "open_page": "此问题不能在聊天中回答，请到 Askback 页面作答。",
    "open_address": "此问题不能在聊天中回答，请打开下面的地址作答。",
    "not_here": "此问题不能在聊天中回答，请从问题消息中打开，或到 Askback 页面作答。",
    "link": "请在此作答：{link}",
    "open": "打开",
    "yes": "是",
    "no": "否",
    "answered": "✅ {name}（{via}）已回答：{answer}",
    "answered_unshown": "✅ {name}（{via}）已回答。",
    "answered_by_nobody": "✅ 已回答。",
    "auto_decided": "🤖 无人及时回答，由引擎自行决定。",
    "expired": "⌛ 截止时间已过，无人回答。",
    "canceled_by": "🚫 {name}（{via}）取消了运行。",
    "canceled_question": "🚫 运行已取消。",
    "abandoned": "🚫 运行已结束，无需再回答。",
    "taken": "您的回答：{answer}",
    "first_was": "{name}（{via}）已经回答过了：{answer}",
    "first_was_unshown": "{name}（{via}）已经回答过了。",
    "gone": "此问题已不存在。",
    "wrong": "这不是有效的回答：{problems}\n问题仍待回答，请重新回复。",
    "only_text": "回答必须是文字，请用文字回复。",
    "no_button": "此按钮已失效。",
    "not_yours": "您无权回答此问题，或者此问题已不存在。",
    "hello": "您好，{name}。问题会以消息的形式发到这里：点选一个选项，或直接回复该消息。",
    "which": "要回答问题，请回复对应的消息：长按该消息，然后选择“回复”。",
    "stranger": "您无权在此回答问题。请让管理员添加 {id}。",
}
LANGUAGES: Mapping[str, Mapping[str, str]] = {"en": ENGLISH, "zh": CHINESE}


class Texts:
    """The texts of one language."""

    def __init__(self, language: str = "en") -> None:
        self._texts = LANGUAGES[language]

    def __call__(self, key: str, **values: Any) -> str:
        return self._texts[key].format(**values)
