"""Judges a run of Rocket Rides from outside: what clients were told, what the processor charged, what was mailed.

Shares nothing with the code that it judges.
"""

import collections
import json


def violations_of(answers, charges, receipts):
    """`answers` are all final answers that any client ever got: key -> [(status, body)]; `charges` the processor's list;
    `receipts` the rides of the receipts that were sent. One answer for each key; one charge and one receipt for each
    ride that was promised, and none for any other."""
    found = []
    promised = {}
    for key, given in answers.items():
        if len(set(given)) != 1:
            found.append(f"answers to {key} differ: {given}")
        for status, body in set(given):
            if status not in (201, 402):
                found.append(f"{key} was answered {status}: {body}")
            elif status == 201:
                facts = json.loads(body)
                if promised.setdefault(facts["ride"], (key, facts["charge"])) != (key, facts["charge"]):
                    found.append(f"{key} was told the ride {facts['ride']} of {promised[facts['ride']][0]}")
    charged = collections.defaultdict(list)
    for charge in charges:
        charged[charge["ride"]].append(charge["id"])
    for ride, ids in charged.items():
        if len(ids) > 1:
            found.append(f"ride {ride} was charged {len(ids)} times: {ids}")
        if ride not in promised:
            found.append(f"ride {ride} was charged and nobody was told")
        elif promised[ride][1] not in ids:
            found.append(f"ride {ride} was charged {ids}, and the client was told {promised[ride][1]}")
    sent = collections.Counter(receipts)
    for ride, count in sent.items():
        if count > 1:
            found.append(f"ride {ride} has {count} receipts")
        if ride not in promised:
            found.append(f"ride {ride} has a receipt and nobody was told")
    for ride in promised:
        if ride not in charged:
            found.append(f"ride {ride} was promised and not charged")
        if ride not in sent:
            found.append(f"ride {ride} has no receipt")
    return found
