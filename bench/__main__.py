"""`make bench`: every benchmark, one after the other."""

from bench import report, write

RECORDS = 20_000
REPEATS = 3

if __name__ == "__main__":
    report.show("write", write.run(RECORDS, REPEATS))
