"""Rewrites a chat template to charge its budget where Jinja has no hook (see `sandbox`)."""

from __future__ import annotations

from collections.abc import Sequence

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.visitor import NodeTransformer

_NODES_A_STEP = 4


class Generation(Extension):
    """The ``{% generation %}…{% endgeneration %}`` tag of training templates; ignored here."""

    tags = {"generation"}  # noqa: RUF012 - jinja's own protocol

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Parse the enclosed statements unchanged."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Metered(NodeTransformer):
    """Rewrites a template so that operations without a Jinja hook are charged."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        """Charge a loop's body on each pass, and its condition on each item."""
        if node.test is not None:
            node.test = _env_call("charge", [node.test], node.lineno)
        return self._pay_first(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        """Charge a macro's body on each call."""
        return self._pay_first(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        """Charge the body of a call block on each call."""
        return self._pay_first(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        """Bound the length of ``a ~ b``."""
        self.generic_visit(node)
        return _env_call("join_text", node.nodes, node.lineno)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        """Charge for a dict's keys: a nested tuple is hashed again at each level."""
        self.generic_visit(node)
        for pair in node.items:
            pair.key = _env_call("charge", [pair.key], node.lineno)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        """Charge for the operands of a comparison."""
        self.generic_visit(node)
        node.expr = _env_call("charge", [node.expr], node.lineno)
        for operand in node.ops:
            operand.expr = _env_call("charge", [operand.expr], node.lineno)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        """Charge for the value that is sliced."""
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _env_call("charge_copy", [node.node], node.lineno)
        return node

    def _pay_first(self, node: nodes.For | nodes.Macro | nodes.CallBlock) -> nodes.Node:
        parts = [part for child in node.body for part in (child, *child.find_all(nodes.Node))]
        text = sum(len(part.data) for part in parts if isinstance(part, nodes.TemplateData))
        self.generic_visit(node)
        costs: list[nodes.Expr] = [
            nodes.Const(1 + len(parts) // _NODES_A_STEP, lineno=node.lineno),
            nodes.Const(text, lineno=node.lineno),
        ]
        pay = nodes.ExprStmt(_env_call("pay", costs, node.lineno), lineno=node.lineno)
        node.body = [pay, *node.body]
        return node


def _env_call(name: str, args: Sequence[nodes.Node], lineno: int) -> nodes.Expr:
    """Return a call of a sandbox method, out of the template's reach."""
    function = nodes.EnvironmentAttribute(name, lineno=lineno)
    return nodes.Call(function, list(args), [], None, None, lineno=lineno)
