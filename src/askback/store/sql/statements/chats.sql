-- name: record_chat_message
INSERT INTO chat_messages (chat, message, run, interaction_id, open)
SELECT :chat, :message, number, :interaction_id, :open FROM runs WHERE id = :run
ON CONFLICT (chat, message) DO UPDATE SET run = excluded.run, interaction_id = excluded.interaction_id, open = excluded.open

-- name: close_chat_message
UPDATE chat_messages SET open = 0 WHERE chat = :chat AND message = :message

-- name: chat_message
SELECT chat_messages.chat, chat_messages.message, runs.id, chat_messages.interaction_id, chat_messages.open
FROM chat_messages
    JOIN runs ON runs.number = chat_messages.run
WHERE chat_messages.chat = :chat AND chat_messages.message = :message

-- name: outdated_chat_messages
SELECT chat_messages.chat, chat_messages.message, runs.id, chat_messages.interaction_id, chat_messages.open
FROM chat_messages INDEXED BY chat_messages_open
    CROSS JOIN runs
    CROSS JOIN interactions
WHERE runs.number = chat_messages.run
    AND interactions.run = chat_messages.run AND interactions.interaction_id = chat_messages.interaction_id
    AND chat_messages.open = 1 AND interactions.outcome <> 'pending'

-- name: outdated_chat_messages_of_run
SELECT chat_messages.chat, chat_messages.message, runs.id, chat_messages.interaction_id, chat_messages.open
FROM runs
    CROSS JOIN chat_messages INDEXED BY chat_messages_of_runs
    CROSS JOIN interactions
WHERE runs.id = :run AND chat_messages.run = runs.number
    AND interactions.run = chat_messages.run AND interactions.interaction_id = chat_messages.interaction_id
    AND chat_messages.open = 1 AND interactions.outcome <> 'pending'
