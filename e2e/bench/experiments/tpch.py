"""Questions to a warehouse of orders, of the kind of TPC-H: the paper's figure 5e."""

from __future__ import annotations

import time
from pathlib import Path

from bench import data, postgres
from bench.experiments.application import Aim, Application, Run
from bench.machine import Machine
from bench.warm import read_everything
from tidepool_lab import store
from tidepool_lab.progress import step

IMAGE_MIB = 512
CUSTOMERS, PARTS, ORDERS = 15_000, 20_000, 100_000
LOAD = f"""
select setseed(0.2015);
create table customer (c_custkey int primary key, c_name text, c_segment text, c_acctbal numeric(12,2), c_comment text);
create table part (p_partkey int primary key, p_type text, p_retailprice numeric(12,2), p_comment text);
create table orders (o_orderkey int primary key, o_custkey int, o_orderdate date, o_orderpriority text, o_comment text);
create table lineitem (l_orderkey int, l_linenumber int, l_partkey int, l_quantity int, l_extendedprice numeric(12,2),
    l_discount numeric(4,2), l_returnflag char, l_shipdate date, l_commitdate date, l_receiptdate date, l_comment text);
insert into customer select key, 'Customer ' || key, (array['AUTOMOBILE','BUILDING','FURNITURE','HOUSEHOLD',
    'MACHINERY'])[1 + floor(random() * 5)], (random() * 10000)::numeric(12,2), repeat(md5(key::text), 3)
    from generate_series(1, {CUSTOMERS}) key;
insert into part select key, (array['PROMO','STANDARD','SMALL','LARGE','ECONOMY'])[1 + floor(random() * 5)],
    (900 + random() * 1000)::numeric(12,2), repeat(md5(key::text), 2) from generate_series(1, {PARTS}) key;
insert into orders select key, 1 + floor(random() * {CUSTOMERS}), date '1992-01-01' + floor(random() * 2400)::int,
    (array['1-URGENT','2-HIGH','3-MEDIUM','4-LOW','5-NONE'])[1 + floor(random() * 5)], repeat(md5(key::text), 3)
    from generate_series(1, {ORDERS}) key;
insert into lineitem select o_orderkey, line, 1 + floor(random() * {PARTS}), 1 + floor(random() * 50),
    (900 + random() * 50000)::numeric(12,2), (floor(random() * 11) / 100)::numeric(4,2),
    (array['A','N','R'])[1 + floor(random() * 3)], o_orderdate + floor(random() * 120)::int,
    o_orderdate + floor(random() * 90)::int, o_orderdate + floor(random() * 150)::int, repeat(md5(line::text), 9)
    from orders, generate_series(1, 4) line;
create index on lineitem (l_orderkey);
create index on lineitem (l_shipdate);
create index on orders (o_orderdate);
create index on orders (o_custkey);
"""
# In the manner of TPC-H's queries of these numbers.
QUERIES = {
    6: "select sum(l_extendedprice * l_discount) from lineitem where l_discount between 0.05 and 0.07"
    " and l_quantity < 24",
    3: "select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue, o_orderdate"
    " from customer join orders on c_custkey = o_custkey join lineitem on l_orderkey = o_orderkey"
    " where c_segment = 'BUILDING' and o_orderdate between '1995-03-01' and '1995-04-15'"
    " group by 1, 3 order by 2 desc, 1 limit 10",
    4: "select o_orderpriority, count(*) from orders where o_orderdate between '1993-07-01' and '1993-07-10'"
    " and exists (select from lineitem where l_orderkey = o_orderkey and l_commitdate < l_receiptdate)"
    " group by 1 order by 1",
    10: "select c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) as revenue, c_acctbal from customer"
    " join orders on c_custkey = o_custkey join lineitem on l_orderkey = o_orderkey"
    " where o_orderdate between '1993-10-01' and '1993-10-12' and l_returnflag = 'R' group by 1, 2, 4"
    " order by 3 desc, 1 limit 20",
    14: "select sum(case when p_type = 'PROMO' then l_extendedprice * (1 - l_discount) else 0 end)"
    " / sum(l_extendedprice * (1 - l_discount)) from lineitem join part on l_partkey = p_partkey"
    " where l_shipdate between '1995-09-01' and '1995-09-03'",
}
ASK = f"-f {postgres.SQL}/queries.sql"


class TpcH(Application):
    """All queries once, one after the other; the answers have to be the same on every side."""

    name = "tpch"
    title = "A database asked as in TPC-H (figure 5e)"
    data_mib = 200
    operation = "query"
    shown = ("per_hour", "queries/hour")
    aims = (Aim(1.05, "figure 5e, at least"), Aim(3.19, "table 2"))

    def disk(self) -> Path:
        return _data() / "disk"

    def start(self, machine: Machine) -> None:
        postgres.start(machine)

    def warm_up(self, machine: Machine) -> None:
        read_everything(machine, postgres.files(machine))

    def run(self, machine: Machine) -> Run:
        begin = time.monotonic()
        found = postgres.query(machine, ASK)
        seconds = time.monotonic() - begin
        expected = (_data() / "answers").read_text().strip()
        assert found.strip() == expected, f"answers: {found}, not {expected}"
        return Run(len(QUERIES), seconds, {"per_hour": len(QUERIES) / seconds * 3600})


def _data() -> Path:
    made_of = (LOAD, QUERIES, postgres.SETTINGS)
    return store.entry("bench-data", data.key("tpch", *made_of), _make)


def _make(out: Path) -> None:
    with step("making a disk with a database of orders (about 1 min)"):
        files = {"load.sql": LOAD, "queries.sql": "".join(f"{query};\n" for query in QUERIES.values())}
        answers = postgres.make(out, files, IMAGE_MIB, f"{postgres.PSQL} {ASK}")
        (out / "answers").write_text(answers)
