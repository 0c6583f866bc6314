id >= 5 AND (name = 'it''s' OR name LIKE 'a%')
NOT day < DATE '2024-01-02'
price <> 12.50
ratio > -1.5e3
