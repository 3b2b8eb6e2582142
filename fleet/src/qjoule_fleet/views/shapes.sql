-- A row for each shape: the text that was seen last. `texts` above 1: hosts or versions of qjoule
-- wrote different texts.
select fingerprint, text, texts, ids, hosts, valid_from
from (
  select
    fingerprint, text, ids, valid_from,
    max(text_rank) over (partition by fingerprint) as texts,
    max(host_rank) over (partition by fingerprint) as hosts,
    row_number() over (partition by fingerprint order by valid_from desc, text, ids) as place
  from (
    select
      fingerprint, text, ids, valid_from,
      dense_rank() over (partition by fingerprint order by text) as text_rank,
      dense_rank() over (partition by fingerprint order by host_id) as host_rank
    from shape_parts
  ) ranked
) placed
where place = 1
