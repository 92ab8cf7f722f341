"""The page's texts in all languages, by key. Templates and scripts contain no visible text.

One word per idea, as in the glossary. In Chinese, with 您 for the user and a space between Chinese and Latin letters or
digits:

    run 运行           skill 技能         engine 引擎        turn 轮, 轮次       session 会话
    question 问题      ask 提问           answer 回答        inbox 收件箱        token (access) 令牌
    token (usage) Token   input 输入     output 输出        parameter 参数      schema schema
    slot 槽位          queued 排队中      waiting 等待       canceled 已取消     deadline 截止时间, 期限
    sign in 登录       sign out 退出登录  install 安装       server 服务器       process 进程

The server and the engines speak English. What they say is shown by its code: `error.CODE` names it, `meaning.CODE` says
what to do, `refusal.CODE` is a refused request. The original text follows as a detail.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FALLBACK = "en"
COOKIE = "askback_language"
NAMES = {"en": "English", "zh": "中文"}
"""The languages, each by its own name."""
_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Translations:
    language: str
    texts: Mapping[str, str]

    def __call__(self, key: str, **values: object) -> str:
        text = self.texts[key]
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", str(value))
        return text

    def find(self, key: str) -> str | None:
        """The text of a key that may be unknown, such as one with a code of a newer version."""
        return self.texts.get(key)

    def by_prefix(self, *prefixes: str) -> dict[str, str]:
        return {key: text for key, text in self.texts.items() if key.partition(".")[0] in prefixes}


def load() -> dict[str, Translations]:
    found = {}
    for language in NAMES:
        files = [json.loads(file.read_text("utf-8")) for file in sorted((_FOLDER / language).glob("*.json"))]
        texts = {key: text for each in files for key, text in each.items()}
        found[language] = Translations(language=language, texts=texts)
    return found


def choose(cookie: str | None, accept_language: str) -> str:
    """The language chosen on the page, else the one that the browser prefers among ours."""
    if cookie in NAMES:
        return cookie
    accepted = [_accepted(part) for part in accept_language.split(",")]
    ours = [(weight, -place, code) for place, (code, weight) in enumerate(accepted) if code in NAMES and weight > 0]
    return max(ours)[2] if ours else FALLBACK


def _accepted(part: str) -> tuple[str, float]:
    """`zh-CN;q=0.8` → `("zh", 0.8)`."""
    code, _, weight = part.strip().partition(";")
    _, _, number = weight.partition("q=")
    try:
        return code.partition("-")[0].lower(), float(number or 1)
    except ValueError:
        return "", 0.0
