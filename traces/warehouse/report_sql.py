"""The SQL of the reports: columns in the order in which `reports` names them."""

from __future__ import annotations

# As `PhaseEvent.input_tokens`: shared tokens are among the fed ones and among the cached ones.
_COMPUTED = "CASE phase WHEN 'prefill' THEN tokens - shared_tokens ELSE 0 END"
_CACHED = "CASE WHEN phase = 'prefill' AND tokens > 0 THEN cached_tokens ELSE 0 END"

_BY_TURN = f"""
    per_turn AS (
        SELECT file, run, turn, sum(wall_s) AS engine_s,
            sum(reread_tokens) AS reread_tokens, sum(recomputed_tokens) AS recomputed_tokens,
            sum(reread_s) AS reread_s, arg_max(reread_label, reread_tokens) AS label,
            sum({_COMPUTED} + {_CACHED}) AS input_tokens,
            sum({_CACHED}) AS cached_tokens,
            sum(CASE phase WHEN 'decode' THEN tokens ELSE 0 END) AS output_tokens
        FROM phases GROUP BY ALL
    )"""


def _by_run(keys: str, columns: str) -> str:
    """Time and tokens of groups of runs. ``columns`` are named in ``runs``."""
    return f"""
    WITH per_run AS (
        SELECT file, run,
            sum({_COMPUTED} + {_CACHED}) AS input_tokens,
            sum({_CACHED}) AS cached_tokens,
            sum({_COMPUTED}) AS fed,
            sum(CASE phase WHEN 'prefill' THEN wall_s ELSE 0 END) AS prefill_s,
            sum(CASE phase WHEN 'decode' THEN tokens ELSE 0 END) AS said,
            sum(CASE phase WHEN 'decode' THEN wall_s ELSE 0 END) AS decode_s,
            sum(wall_s) AS wall_s
        FROM phases GROUP BY ALL
    ), asked AS (
        SELECT file, run, count(*) AS turns,
            count(*) FILTER (status = 'answered') AS answered, median(ttft_s) AS ttft_s
        FROM turns GROUP BY ALL
    )
    SELECT {columns}, count(*), sum(asked.turns),
        sum(answered) / nullif(sum(asked.turns), 0),
        sum(per_run.input_tokens),
        sum(per_run.cached_tokens) / nullif(sum(per_run.input_tokens), 0),
        sum(said), sum(per_run.wall_s) AS time_s,
        sum(per_run.wall_s) / nullif(sum(sum(per_run.wall_s)) OVER (), 0),
        sum(fed) / nullif(sum(prefill_s), 0), sum(said) / nullif(sum(decode_s), 0),
        median(asked.ttft_s)
    FROM runs LEFT JOIN per_run USING (file, run) LEFT JOIN asked USING (file, run)
    GROUP BY {keys} ORDER BY time_s DESC NULLS LAST, {keys}"""


SQL = {
    "overview": """
    WITH whole AS (
        SELECT file, count(*) AS runs, sum(turns) AS turns, sum(phases) AS phases,
            sum(tool_calls) AS tool_calls, sum(input_tokens) AS input_tokens,
            sum(output_tokens) AS output_tokens, sum(engine_s) AS time_s, sum(tool_s) AS tool_s
        FROM runs GROUP BY file
    )
    SELECT status, count(*), coalesce(sum(whole.runs), 0), coalesce(sum(turns), 0),
        coalesce(sum(phases), 0), coalesce(sum(tool_calls), 0), coalesce(sum(input_tokens), 0),
        coalesce(sum(output_tokens), 0), sum(time_s), sum(tool_s)
    FROM files LEFT JOIN whole USING (file) GROUP BY status
    ORDER BY list_position(['ok', 'torn', 'newer'], status) NULLS LAST, status""",
    "phases": """
    SELECT phase, replace(purpose, '_', ' ') AS what, count(*), sum(tokens), sum(cached_tokens),
        sum(reread_tokens + recomputed_tokens), sum(wall_s) AS time_s,
        sum(wall_s) / nullif(sum(sum(wall_s)) OVER (), 0),
        sum(tokens) / nullif(sum(wall_s), 0)
    FROM phases GROUP BY phase, what ORDER BY time_s DESC, phase, what""",
    "regimes": """
    SELECT regime, count(*), sum(tokens), sum(wall_s) AS time_s,
        sum(wall_s) / nullif(sum(sum(wall_s)) OVER (), 0), sum(tokens) / nullif(sum(wall_s), 0),
        CASE WHEN regime LIKE 'remote %' THEN NULL
            ELSE sum(limit_share * wall_s) / nullif(sum(wall_s), 0) END,
        CASE WHEN regime LIKE 'remote %' THEN NULL
            ELSE count(*) FILTER (predicted = observed) / count(*) END
    FROM phases WHERE tokens > 0 GROUP BY regime ORDER BY time_s DESC, regime""",
    "tools": """
    WITH steps AS (
        SELECT file, run, turn, step,
            sum(CASE phase WHEN 'decode' THEN tokens ELSE 0 END) AS said,
            sum(CASE phase WHEN 'prefill' THEN tokens ELSE 0 END) AS fed
        FROM phases GROUP BY ALL
    ), calls AS (
        SELECT *, count(*) OVER step AS beside,
            result_characters / nullif(sum(result_characters) OVER step, 0) AS part
        FROM tools WINDOW step AS (PARTITION BY file, run, turn, step)
    )
    SELECT calls.name, count(*), count(error_kind), count(*) FILTER (decision = 'denied'),
        sum(duration_s) AS time_s, sum(duration_s) / nullif(sum(sum(duration_s)) OVER (), 0),
        median(duration_s), quantile_cont(duration_s, 0.95), sum(result_characters),
        sum(wrote.said / beside), sum(read.fed * coalesce(part, 1 / beside))
    FROM calls LEFT JOIN steps AS wrote USING (file, run, turn, step)
        LEFT JOIN steps AS read ON read.file = calls.file AND read.run = calls.run
            AND read.turn = calls.turn AND read.step = calls.step + 1
    GROUP BY calls.name ORDER BY time_s DESC, calls.name""",
    "models": _by_run("model, quant", "coalesce(model, 'not named') AS model, quant"),
    "machines": _by_run(
        "cpu, target, threads", "coalesce(nullif(cpu, ''), 'not named') AS cpu, target, threads"
    ),
    "turns": f"""
    WITH slowest AS (SELECT * FROM turns ORDER BY wall_s DESC, file, run, turn LIMIT ?),
    {_BY_TURN.replace("FROM phases", "FROM phases SEMI JOIN slowest USING (file, run, turn)")},
    in_tools AS (
        SELECT file, run, turn, sum(duration_s) AS tool_s
        FROM tools SEMI JOIN slowest USING (file, run, turn) GROUP BY ALL
    )
    SELECT run, turn, model, slowest.wall_s, engine_s, coalesce(in_tools.tool_s, 0),
        slowest.ttft_s, steps, per_turn.input_tokens, per_turn.cached_tokens,
        per_turn.output_tokens, file
    FROM slowest LEFT JOIN per_turn USING (file, run, turn)
        LEFT JOIN in_tools USING (file, run, turn)
        LEFT JOIN (SELECT file, run, model FROM runs) USING (file, run)
    ORDER BY slowest.wall_s DESC, file, run, turn""",
    "rereads": f"""
    WITH {_BY_TURN}
    SELECT run, turn, model, reread_tokens, recomputed_tokens, reread_s, input_tokens,
        cached_tokens / nullif(input_tokens, 0), label, file
    FROM per_turn LEFT JOIN (SELECT file, run, model FROM runs) USING (file, run)
    WHERE reread_tokens + recomputed_tokens > 0
    ORDER BY reread_tokens + recomputed_tokens DESC, file, run, turn LIMIT ?""",
    "failures": """
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
    SELECT what, kind, count(*) AS number, count(DISTINCT (file, run)) FILTER (run IS NOT NULL),
        count(*) / any_value(total), min(file)
    FROM found JOIN everything USING (what) GROUP BY what, kind
    ORDER BY list_position(['question', 'tool call', 'reply', 'file'], what), number DESC, kind""",
    "transitions": """
    WITH pairs AS (
        SELECT regime AS a, lead(regime) OVER (PARTITION BY file, run ORDER BY number) AS b
        FROM phases WHERE tokens > 0
    )
    SELECT a, b, count(*) FROM pairs WHERE b IS NOT NULL GROUP BY a, b""",
    "predictions": """
    WITH known AS (
        SELECT *, wall_s / predicted_wall_s AS factor FROM phases
        WHERE predicted_wall_s > 0 AND wall_s > 0 AND tokens > 0
    )
    SELECT predicted_by, regime, count(*), quantile_cont(factor, 0.1), median(factor),
        quantile_cont(factor, 0.9), quantile_cont(factor, 0.99),
        avg(abs(wall_s - predicted_wall_s) / wall_s),
        count(*) FILTER (predicted = observed) / count(*), sum(wall_s) AS time_s,
        sum(wall_s) / nullif(sum(sum(wall_s)) OVER (), 0)
    FROM known GROUP BY predicted_by, regime ORDER BY predicted_by, time_s DESC, regime""",
}
