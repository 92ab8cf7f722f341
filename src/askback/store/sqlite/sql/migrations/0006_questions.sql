-- The inbox by deadline: questions without one come last. Answered questions: the latest first.
CREATE INDEX runs_waiting_by_deadline ON runs (coalesce(deadline_at, 9223372036854775807), asked_at)
WHERE state = 'waiting_user';

CREATE INDEX interactions_closed ON interactions (answered_at) WHERE answered_at IS NOT NULL;
