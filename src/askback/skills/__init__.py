"""Skill packages: reading, validating and storing them, their schemas, and the prompts for engines.

Knows neither engines nor runs. Start with `package`, which reads a folder as a whole, and `library`, which stores and
finds packages. `json_schema` validates values, `validation` applies it to requests, replies and outputs, and `prompts`
has the instructions for engines.
"""
