-- name: record_chat_message
INSERT INTO chat_messages (chat, message, run, interaction_id, open)
SELECT :chat, :message, number, :interaction_id, :open FROM runs WHERE id = :run FOR KEY SHARE
ON CONFLICT (chat, message) DO UPDATE SET run = excluded.run, interaction_id = excluded.interaction_id, open = excluded.open
