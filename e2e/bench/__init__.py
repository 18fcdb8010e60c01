"""The evaluation of the Puma paper (SYSTOR 2015, sections 4 and 5), repeated with Tidepool: `make bench`.

An experiment (`bench.experiments`) is a list of trials. A trial boots a borrower and a lender, sets one side up (no
pool, the pool, what one would build today, the ideal), measures, and is over, so that nothing of one side is left for
the next. Sides alternate within a repetition, and what was measured is kept line by line: a run that was interrupted
goes on.
"""
