"""`msllm doctor`: what is wrong with this machine, layer by layer, from the device up to the mask of visible devices.

A layer looks through a `Host` only: its files, its environment, its commands. So the tests play recordings of servers that
we do not have. Imports no MindSpore: what needs it runs in a process of its own.
"""
