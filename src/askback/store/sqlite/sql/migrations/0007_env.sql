-- The secret variables of a run, sealed with a pad that is in the run's folder. Erased when the run is over.
ALTER TABLE requests ADD COLUMN env TEXT;
