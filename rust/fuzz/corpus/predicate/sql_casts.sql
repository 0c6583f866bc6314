CAST(id AS STRING) = '5'
5 = id
id % 2 = 0
