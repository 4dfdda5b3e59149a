-- Stage the records of one bulk transaction.
COPY incoming FROM STDIN
