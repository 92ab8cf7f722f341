-- Runs can have permissions. A version that does not know them would let calls of tools run that need an approval.
SELECT 1;
