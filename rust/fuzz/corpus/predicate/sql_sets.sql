city IN ('Oslo', 'Bergen', NULL)
id NOT BETWEEN 3 AND 7
`point`.x IS NOT NULL
at <= TIMESTAMP '2024-01-15 12:00:00'
city <=> NULL
