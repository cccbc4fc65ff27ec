-- The queries of the reports, each under its name; `reports.py` says how they are shown.

--- views: what several of them are made from; open to `triplepoint trace query`, too

-- Tokens and times of each question. As in a trace's sums, tokens of a prefill that were shared are
-- among the fed ones and among the cached ones.
CREATE TEMP VIEW turn_sums AS
SELECT file, run, turn, sum(wall_s) AS engine_s,
    sum(reread_tokens) AS reread_tokens, sum(recomputed_tokens) AS recomputed_tokens,
    sum(reread_s) AS reread_s, arg_max(reread_label, reread_tokens) AS reread_label,
    coalesce(sum(tokens - shared_tokens) FILTER (phase = 'prefill'), 0) AS computed_tokens,
    coalesce(sum(phases.cached_tokens) FILTER (phase = 'prefill' AND tokens > 0), 0)
        AS cached_tokens,
    coalesce(
        sum(tokens - shared_tokens + CASE WHEN tokens > 0 THEN phases.cached_tokens ELSE 0 END)
        FILTER (phase = 'prefill'), 0) AS input_tokens,
    coalesce(sum(wall_s) FILTER (phase = 'prefill'), 0) AS prefill_s,
    coalesce(sum(tokens) FILTER (phase = 'decode'), 0) AS output_tokens,
    coalesce(sum(wall_s) FILTER (phase = 'decode'), 0) AS decode_s
FROM phases GROUP BY ALL;

-- The same of each run, with its header and how its questions ended.
CREATE TEMP VIEW run_sums AS
WITH sums AS (
    SELECT file, run, sum(engine_s) AS engine_s, sum(computed_tokens) AS computed_tokens,
        sum(cached_tokens) AS cached_tokens, sum(input_tokens) AS input_tokens,
        sum(prefill_s) AS prefill_s, sum(output_tokens) AS output_tokens,
        sum(decode_s) AS decode_s
    FROM turn_sums GROUP BY ALL
), questions AS (
    SELECT file, run, count(*) AS turns, count(*) FILTER (status = 'answered') AS answered,
        median(ttft_s) AS ttft_s
    FROM turns GROUP BY ALL
)
SELECT file, run, model, quant, cpu, target, threads, sums.* EXCLUDE (file, run),
    questions.* EXCLUDE (file, run)
FROM runs LEFT JOIN sums USING (file, run) LEFT JOIN questions USING (file, run);

--- overview

WITH whole AS (
    SELECT file, count(*) AS runs, sum(turns) AS turns, sum(phases) AS phases,
        sum(tool_calls) AS tool_calls, sum(input_tokens) AS input_tokens,
        sum(output_tokens) AS output_tokens, sum(engine_s) AS time_s, sum(tool_s) AS tool_s
    FROM runs GROUP BY file
)
SELECT status, count(*) AS files, coalesce(sum(whole.runs), 0) AS runs,
    coalesce(sum(turns), 0) AS turns, coalesce(sum(phases), 0) AS phases,
    coalesce(sum(tool_calls), 0) AS tool_calls, coalesce(sum(input_tokens), 0) AS input_tokens,
    coalesce(sum(output_tokens), 0) AS output_tokens, sum(time_s) AS time_s, sum(tool_s) AS tool_s
FROM files LEFT JOIN whole USING (file) GROUP BY status
ORDER BY list_position(['ok', 'torn', 'newer'], status) NULLS LAST, status

--- phases

SELECT phase, replace(purpose, '_', ' ') AS purpose, count(*) AS phases, sum(tokens) AS tokens,
    sum(cached_tokens) AS cached_tokens,
    sum(reread_tokens + recomputed_tokens) AS reread_tokens, sum(wall_s) AS time_s,
    sum(wall_s) / nullif(sum(sum(wall_s)) OVER (), 0) AS time_share,
    sum(tokens) / nullif(sum(wall_s), 0) AS tokens_per_s
FROM phases GROUP BY phase, purpose ORDER BY time_s DESC, phase, purpose

--- regimes

SELECT regime, count(*) AS phases, sum(tokens) AS tokens, sum(wall_s) AS time_s,
    sum(wall_s) / nullif(sum(sum(wall_s)) OVER (), 0) AS time_share,
    sum(tokens) / nullif(sum(wall_s), 0) AS tokens_per_s,
    CASE WHEN regime LIKE 'remote %' THEN NULL
        ELSE sum(limit_share * wall_s) / nullif(sum(wall_s), 0) END AS limit_share,
    CASE WHEN regime LIKE 'remote %' THEN NULL
        ELSE count(*) FILTER (predicted = observed) / count(*) END AS as_predicted
FROM phases WHERE tokens > 0 GROUP BY regime ORDER BY time_s DESC, regime

--- tools

WITH steps AS (
    SELECT file, run, turn, step,
        sum(CASE phase WHEN 'decode' THEN tokens ELSE 0 END) AS decoded,
        sum(CASE phase WHEN 'prefill' THEN tokens ELSE 0 END) AS fed
    FROM phases GROUP BY ALL
), calls AS (
    SELECT *, count(*) OVER step AS calls_of_step,
        result_characters / nullif(sum(result_characters) OVER step, 0) AS part
    FROM tools WINDOW step AS (PARTITION BY file, run, turn, step)
)
SELECT calls.name AS tool, count(*) AS calls, count(error_kind) AS errors,
    count(*) FILTER (decision = 'denied') AS denied, sum(duration_s) AS time_s,
    sum(duration_s) / nullif(sum(sum(duration_s)) OVER (), 0) AS time_share,
    median(duration_s) AS median_s, quantile_cont(duration_s, 0.95) AS p95_s,
    sum(result_characters) AS result_characters,
    sum(wrote.decoded / calls_of_step) AS call_tokens,
    sum(read.fed * coalesce(part, 1 / calls_of_step)) AS result_tokens
FROM calls LEFT JOIN steps AS wrote USING (file, run, turn, step)
    LEFT JOIN steps AS read ON read.file = calls.file AND read.run = calls.run
        AND read.turn = calls.turn AND read.step = calls.step + 1
GROUP BY calls.name ORDER BY time_s DESC, calls.name

--- models

SELECT coalesce(run_sums.model, 'not named') AS model, quant, count(*) AS runs,
    sum(turns) AS turns, sum(answered) / nullif(sum(turns), 0) AS answered,
    sum(input_tokens) AS input_tokens,
    sum(cached_tokens) / nullif(sum(input_tokens), 0) AS cached,
    sum(output_tokens) AS output_tokens, sum(engine_s) AS time_s,
    sum(engine_s) / nullif(sum(sum(engine_s)) OVER (), 0) AS time_share,
    sum(computed_tokens) / nullif(sum(prefill_s), 0) AS prefill_per_s,
    sum(output_tokens) / nullif(sum(decode_s), 0) AS decode_per_s, median(ttft_s) AS ttft_s
FROM run_sums GROUP BY run_sums.model, quant ORDER BY time_s DESC NULLS LAST, run_sums.model, quant

--- machines

SELECT coalesce(nullif(run_sums.cpu, ''), 'not named') AS cpu, target, threads, count(*) AS runs,
    sum(turns) AS turns, sum(answered) / nullif(sum(turns), 0) AS answered,
    sum(input_tokens) AS input_tokens,
    sum(cached_tokens) / nullif(sum(input_tokens), 0) AS cached,
    sum(output_tokens) AS output_tokens, sum(engine_s) AS time_s,
    sum(engine_s) / nullif(sum(sum(engine_s)) OVER (), 0) AS time_share,
    sum(computed_tokens) / nullif(sum(prefill_s), 0) AS prefill_per_s,
    sum(output_tokens) / nullif(sum(decode_s), 0) AS decode_per_s, median(ttft_s) AS ttft_s
FROM run_sums GROUP BY run_sums.cpu, target, threads ORDER BY time_s DESC NULLS LAST, run_sums.cpu, target, threads

--- turns

WITH slowest AS (SELECT * FROM turns ORDER BY wall_s DESC, file, run, turn LIMIT $limit),
in_tools AS (
    SELECT file, run, turn, sum(duration_s) AS tool_s
    FROM tools SEMI JOIN slowest USING (file, run, turn) GROUP BY ALL
)
SELECT run, turn, model, slowest.wall_s, engine_s, coalesce(in_tools.tool_s, 0) AS tool_s,
    slowest.ttft_s, steps, sums.input_tokens, sums.cached_tokens, sums.output_tokens, file
FROM slowest LEFT JOIN turn_sums AS sums USING (file, run, turn)
    LEFT JOIN in_tools USING (file, run, turn)
    LEFT JOIN (SELECT file, run, model FROM runs) USING (file, run)
ORDER BY slowest.wall_s DESC, file, run, turn

--- rereads

SELECT run, turn, model, reread_tokens, recomputed_tokens, reread_s, input_tokens,
    cached_tokens / nullif(input_tokens, 0) AS cached, reread_label AS label, file
FROM turn_sums LEFT JOIN (SELECT file, run, model FROM runs) USING (file, run)
WHERE reread_tokens + recomputed_tokens > 0
ORDER BY reread_tokens + recomputed_tokens DESC, file, run, turn LIMIT $limit

--- failures

WITH ends AS (
    SELECT file, run, coalesce(status, 'unfinished') AS how, error_kind FROM turns
), found AS (
    SELECT 'question' AS what, concat_ws(': ', how, error_kind) AS kind, file, run
    FROM ends WHERE how <> 'answered'
    UNION ALL SELECT 'tool call', name || ': ' || error_kind, file, run
    FROM tools WHERE error_kind IS NOT NULL AND decision <> 'denied'
    UNION ALL SELECT 'tool call', name || ': denied by ' || decided_by, file, run
    FROM tools WHERE decision = 'denied'
    UNION ALL SELECT 'reply', finish_reason, file, run
    FROM phases WHERE finish_reason <> ''
    UNION ALL SELECT 'file', status, file, NULL FROM files WHERE status <> 'ok'
), everything AS (
    SELECT 'question' AS what, count(*) AS total FROM turns
    UNION ALL SELECT 'tool call', count(*) FROM tools
    UNION ALL SELECT 'reply', count(*) FROM phases WHERE phase = 'decode'
    UNION ALL SELECT 'file', count(*) FROM files
)
SELECT what, kind, count(*) AS number,
    count(DISTINCT (file, run)) FILTER (run IS NOT NULL) AS runs,
    count(*) / any_value(total) AS share, min(file) AS example
FROM found JOIN everything USING (what) GROUP BY what, kind
ORDER BY list_position(['question', 'tool call', 'reply', 'file'], what), number DESC, kind

--- transitions

WITH pairs AS (
    SELECT regime, lead(regime) OVER (PARTITION BY file, run ORDER BY number) AS next
    FROM phases WHERE tokens > 0
)
SELECT regime, next, count(*) AS phases FROM pairs WHERE next IS NOT NULL GROUP BY ALL

--- predictions

WITH known AS (
    SELECT *, wall_s / predicted_wall_s AS factor FROM phases
    WHERE predicted_wall_s > 0 AND wall_s > 0 AND tokens > 0
)
SELECT predicted_by, regime, count(*) AS phases, quantile_cont(factor, 0.1) AS p10,
    median(factor) AS median, quantile_cont(factor, 0.9) AS p90,
    quantile_cont(factor, 0.99) AS p99,
    avg(abs(wall_s - predicted_wall_s) / wall_s) AS mean_error,
    count(*) FILTER (predicted = observed) / count(*) AS as_predicted, sum(wall_s) AS time_s,
    sum(wall_s) / nullif(sum(sum(wall_s)) OVER (), 0) AS time_share
FROM known GROUP BY predicted_by, regime ORDER BY predicted_by, time_s DESC, regime
