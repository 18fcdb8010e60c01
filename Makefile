# Every target calls one script; what it does is said there.
.PHONY: setup demo test docs release stress scale bench lint clean

# Packages, build/venv, and what is built from source into the cache
setup:
	e2e/setup

# The main job from nothing, with figures in build/demo.json
demo: setup
	e2e/demo/run

# Everything that can fail: linters, unit tests, the module's tests, the lab
test: setup
	e2e/check all

# The documentation as a site and as man pages, in build/site and build/man
docs:
	docs/site/build

# All that is installed, in dist/; KEY=FILE signs it with a secret key of minisign's
release: setup
	e2e/release $(if $(KEY),--key $(KEY))

# The module for long, on every kernel and file system, with faults; results in build/stress.json
stress: setup
	kernel-module/tests/long

# How the operator grows from 100 to 10,000 guests; figures in build/scale.json, a plot in build/scale.png
scale: setup
	operator/scale

# The paper's evaluation; ONLY=random,sequential for some of it. Results in build/bench.json and build/bench/
bench: setup
	e2e/bench/run

lint: setup
	e2e/check lint

# Takes the lab down and removes build products; the cache stays
clean:
	e2e/lab down
	rm -rf build
