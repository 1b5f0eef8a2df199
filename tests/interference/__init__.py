"""Nothing is told beside the noise.

Each test here runs a workflow twice, on secrets that differ in one record, and compares every byte
that comes out. What was *released* (the noised sums and the codes: all that passes
``tacit._ground.outlet.let_out``) is recorded in the first run and given back in the second, and the
system's randomness is a stream that is the same in both; whatever else differs was told beside the
noise. Exit codes, refusals, warnings, names, order and number of files, their modes and their
left-overs are outlets like any other.

An outlet is *public*, and then equal byte for byte, or the *holder's*, and then says so in its
own text (``KEEP``) and must merely exist in both runs. A test says which files are the holder's,
and whether the terminal is; everything else is public. Times are the same in both runs.

Enter a test with ``@tells_nothing_beside("statistic", "statistic-table")``: the commands and kinds
of release that it covers. ``test_registry.py`` fails while a command that writes, prints or sends
something about a secret, or a kind of release, has no test.
"""
