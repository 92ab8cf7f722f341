-- Messages in chats that show a question. `open`: the message still offers to answer it.
CREATE TABLE chat_messages (
    chat INTEGER NOT NULL,
    message INTEGER NOT NULL,
    run INTEGER NOT NULL REFERENCES runs (number),
    interaction_id TEXT NOT NULL,
    open INTEGER NOT NULL,
    PRIMARY KEY (chat, message)
) STRICT, WITHOUT ROWID;

CREATE INDEX chat_messages_of_runs ON chat_messages (run, open);
CREATE INDEX chat_messages_open ON chat_messages (open) WHERE open = 1;
