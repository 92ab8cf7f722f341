"""A travel desk that uses Askback over HTTP: submits a job, puts the question to its own customer, prints the plan.

    python3 trip_desk.py Lisbon 3

The server's address and a token are taken from ASKBACK_URL and ASKBACK_TOKEN. The token needs the scopes
`submit`, `answer` and `read`: askback tokens create trip-desk --scope submit --scope answer --scope read
TRIP_ENGINE names the engine; without it the server takes the first that is installed. `scripted` needs no account.
"""

import os
import sys

from askback.client import CallFailed, Client, Interaction, Refused


def ask_customer(question: Interaction) -> str:
    print(question.prompt)
    for option in question.options:
        print(f"  - {option['value']}: {option['label']}")
    return input("> ")


def plan_trip(client: Client, destination: str, days: int) -> dict:
    wanted = {"destination": destination, "days": days}
    run = client.create_run("trip-planner", engine=os.environ.get("TRIP_ENGINE"), input=wanted)
    while not (run := client.wait(run.id)).state.final:
        try:
            client.reply(run.id, run.pending_interaction.interaction_id, ask_customer(run.pending_interaction))
        except Refused as refusal:
            print(f"Sorry: {refusal.message} {'; '.join(refusal.problems)}")
    result = client.result(run.id)
    if result.error is not None:
        raise SystemExit(f"no plan: {result.error.message}")
    return result.data


if __name__ == "__main__":
    try:
        with Client(os.environ["ASKBACK_URL"], os.environ["ASKBACK_TOKEN"]) as client:
            plan = plan_trip(client, sys.argv[1], int(sys.argv[2]))
    except CallFailed as failure:
        raise SystemExit(f"the planner cannot be asked: {failure}") from None
    print(f"\n{plan['title']} ({plan['pace']})")
    for day in plan["days"]:
        print(f"  day {day['day']}: {day['plan']}")
