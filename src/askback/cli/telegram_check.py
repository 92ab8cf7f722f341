"""The checks of `askback doctor` for the Telegram bot: its token, other users of it, and whether it reaches its chats."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from askback.cli.finding import Finding

if TYPE_CHECKING:
    from askback.notifications.channels.telegram.api import BotApi
    from askback.settings.model import Settings

_WHAT = "telegram"


async def telegram_findings(settings: Settings) -> AsyncIterator[Finding]:
    """Nothing if there is no bot. Sends no message."""
    telegram = settings.telegram
    if telegram.token is None:
        return
    from askback.notifications.channels.telegram.api import BotApi, BotApiError, Refused

    api = BotApi(token=telegram.token, url=telegram.api_url)
    try:
        name = (await api.call("getMe"))["username"]
        yield Finding(what=_WHAT, ok=True, message=f"the token belongs to the bot @{name}")
        async for finding in _receivers(settings, api):
            yield finding
    except Refused as error:
        advice = "take the token from @BotFather again, and correct telegram.token" if error.of_token else ""
        message = f"the token is refused ({error.status})" if error.of_token else f"the Bot API says: {error}"
        yield Finding(what=_WHAT, ok=False, message=message, advice=advice)
    except BotApiError as error:
        message = f"the Bot API at {telegram.api_url} cannot be reached: {error}"
        advice = "check the network, HTTPS_PROXY and telegram.api_url"
        yield Finding(what=_WHAT, ok=False, message=message, advice=advice)
    finally:
        await api.close()


async def _receivers(settings: Settings, api: BotApi) -> AsyncIterator[Finding]:
    from askback.notifications.channels.telegram.api import Refused

    if (await api.call("getWebhookInfo")).get("url"):
        message = "the bot sends its updates to a webhook, so no answer arrives here"
        advice = "use another bot, or remove the webhook with the method deleteWebhook"
        yield Finding(what=_WHAT, ok=False, message=message, advice=advice)
    if not any(chat.notify for chat in settings.telegram.chats):
        advice = "send /start to the bot: it replies with your id, which belongs in telegram.chats"
        yield Finding(what=_WHAT, ok=None, message="no chat gets questions", advice=advice, warning=True)
    for chat in settings.telegram.chats:
        if not chat.notify:
            continue
        try:
            await api.call("getChat", chat_id=chat.id)
        except Refused as error:
            message = f"the bot does not reach {chat.name} ({chat.id}): {error}"
            advice = "add the bot to the group" if chat.id < 0 else f"{chat.name} must send /start to the bot"
            yield Finding(what=_WHAT, ok=None, message=message, advice=advice, warning=True)
