"""The demo: one guest's page cache grows into another's memory, measured before and after.

It uses the lab as a user would, through `e2e/lab`: kubectl, Helm, a shell in a guest, HTTP.
"""
