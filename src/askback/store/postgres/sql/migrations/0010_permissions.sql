-- Runs can have permissions, and tokens the scope to approve. A program that knows neither would let calls of tools run that
-- need an approval.
-- oldest format: 10
SELECT 1;
