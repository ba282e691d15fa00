"""What the black-box tests stand on: a scriptable upstream, the gateway as a process, and a strict HTTP client."""
