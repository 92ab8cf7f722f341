"""Text from untrusted sources, and text for people. Knows nothing of runs, engines or skills.

`json_text` and `yaml_text` parse strictly and within limits, `redaction` masks secrets, `diff` compares texts. Start with
`formatting`: it makes a text safe to print, and has the one formatter of sizes, durations and times.
"""
