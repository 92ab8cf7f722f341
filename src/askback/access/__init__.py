"""Who may call: tokens, sessions, invitations, failed sign-ins, and push devices.

Does not know HTTP routes; `http.auth` asks here. Start with `grants`, which has the rights of a caller, and `issued`, which has
what sessions, invitations and push subscriptions share.
"""
