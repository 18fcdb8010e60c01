"""Orders of a wholesaler, of the kind of TPC-C, with pgbench: the paper's figure 5f."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

from bench import data, postgres
from bench.experiments.application import Aim, Application, Run
from bench.machine import PATIENCE_SECONDS, Machine
from bench.warm import read_everything
from tidepool_lab import store
from tidepool_lab.progress import step

IMAGE_MIB = 640
WAREHOUSES, ITEMS, DISTRICTS, CUSTOMERS = 2, 100_000, 10, 3000  # TPC-C's own numbers, for each the next
CLIENTS, SECONDS, WARM_SECONDS = 4, 30, 10
LOAD = f"""
select setseed(0.2015);
create table warehouse (w_id int primary key, w_tax numeric(4,4), w_ytd numeric(12,2)) with (fillfactor = 20);
create table district (d_w_id int, d_id int, d_tax numeric(4,4), d_ytd numeric(12,2), d_next_o_id int,
    primary key (d_w_id, d_id)) with (fillfactor = 20);
create table customer (c_w_id int, c_d_id int, c_id int, c_discount numeric(4,4), c_balance numeric(12,2),
    c_payment_cnt int, c_data text, primary key (c_w_id, c_d_id, c_id)) with (fillfactor = 90);
create table history (h_c_id int, h_d_id int, h_w_id int, h_date timestamp, h_amount numeric(6,2));
create table item (i_id int primary key, i_name text, i_price numeric(5,2), i_data text);
create table stock (s_w_id int, s_i_id int, s_quantity int, s_dist text, s_ytd int, s_order_cnt int, s_data text,
    primary key (s_w_id, s_i_id)) with (fillfactor = 90);
create table orders (o_w_id int, o_d_id int, o_id int, o_c_id int, o_entry_d timestamp, o_ol_cnt int,
    primary key (o_w_id, o_d_id, o_id));
create table order_line (ol_w_id int, ol_d_id int, ol_o_id int, ol_number int, ol_i_id int, ol_quantity int,
    ol_amount numeric(8,2), ol_dist_info text, primary key (ol_w_id, ol_d_id, ol_o_id, ol_number));
insert into warehouse select w, 0.1, 0 from generate_series(1, {WAREHOUSES}) w;
insert into district select w, d, 0.1, 0, {CUSTOMERS} + 1
    from generate_series(1, {WAREHOUSES}) w, generate_series(1, {DISTRICTS}) d;
insert into customer select w, d, c, (random() / 2)::numeric(4,4), 0, 0, repeat(md5(c::text), 14)
    from generate_series(1, {WAREHOUSES}) w, generate_series(1, {DISTRICTS}) d, generate_series(1, {CUSTOMERS}) c;
insert into item select i, md5(i::text), (1 + random() * 99)::numeric(5,2), md5((-i)::text)
    from generate_series(1, {ITEMS}) i;
insert into stock select w, i, 10 + floor(random() * 91), repeat(md5(i::text), 7), 0, 0, md5((-i)::text)
    from generate_series(1, {WAREHOUSES}) w, generate_series(1, {ITEMS}) i;
insert into orders select w, d, o, 1 + floor(random() * {CUSTOMERS}), now(), 10
    from generate_series(1, {WAREHOUSES}) w, generate_series(1, {DISTRICTS}) d, generate_series(1, {CUSTOMERS}) o;
insert into order_line select o_w_id, o_d_id, o_id, l, 1 + floor(random() * {ITEMS}), 5, 0, md5(l::text)
    from orders, generate_series(1, 10) l;
"""
# nurand is TPC-C's: some customers, and some goods, are asked for more often than others.
FUNCTIONS = f"""
create function nurand(a int, most int) returns int language sql volatile as $$
    select ((floor(random() * (a + 1))::int | (1 + floor(random() * most)::int)) % most) + 1 $$;

create function new_order(w int, d int) returns numeric language plpgsql as $$
declare
    o int; c int := nurand(1023, {CUSTOMERS}); lines int := 5 + floor(random() * 11); price numeric; quantity int;
    goods int[]; good int; total numeric := 0; dist text;
begin
    -- in order, so that two orders that want the same goods do not wait for each other for ever
    select array_agg(id order by id) into goods
        from (select distinct nurand(8191, {ITEMS}) as id from generate_series(1, lines)) as wanted;
    perform c_discount from customer where c_w_id = w and c_d_id = d and c_id = c;
    for line in 1 .. array_length(goods, 1) loop
        good := goods[line];
        quantity := 1 + floor(random() * 10);
        select i_price into strict price from item where i_id = good;
        update stock set s_quantity = s_quantity - quantity + case when s_quantity > quantity + 10 then 0 else 91 end,
            s_ytd = s_ytd + quantity, s_order_cnt = s_order_cnt + 1 where s_w_id = w and s_i_id = good
            returning left(s_dist, 24) into strict dist;
        total := total + quantity * price;
    end loop;
    update district set d_next_o_id = d_next_o_id + 1 where d_w_id = w and d_id = d
        returning d_next_o_id - 1 into strict o;
    insert into orders values (w, d, o, c, now(), array_length(goods, 1));
    insert into order_line select w, d, o, number, good.id, 1, price, dist
        from unnest(goods) with ordinality as good(id, number);
    return total;
end $$;

create function payment(w int, d int) returns void language plpgsql as $$
declare
    c int := nurand(1023, {CUSTOMERS}); amount numeric := (1 + random() * 4999)::numeric(6,2);
begin
    update customer set c_balance = c_balance - amount, c_payment_cnt = c_payment_cnt + 1
        where c_w_id = w and c_d_id = d and c_id = c;
    insert into history values (c, d, w, now(), amount);
    update district set d_ytd = d_ytd + amount where d_w_id = w and d_id = d;
    update warehouse set w_ytd = w_ytd + amount where w_id = w;
end $$;

create function order_status(w int, d int) returns bigint language sql as $$
    select count(*) from order_line where ol_w_id = w and ol_d_id = d
        and ol_o_id = (select max(o_id) from orders where o_w_id = w and o_d_id = d
            and o_id <= 1 + floor(random() * {CUSTOMERS})::int) $$;

create function stock_level(w int, d int) returns bigint language sql as $$
    select count(distinct s_i_id) from district join order_line on ol_w_id = w and ol_d_id = d
        and ol_o_id between d_next_o_id - 10 and d_next_o_id - 1
        join stock on s_w_id = w and s_i_id = ol_i_id where d_w_id = w and d_id = d and s_quantity < 15 $$;
"""
SHARES = {"new_order": 45, "payment": 43, "order_status": 6, "stock_level": 6}
SCRIPT = """\\set w random(1, {warehouses})
\\set d random(1, {districts})
select {function}(:w, :d);
"""
# TPC-C's consistency conditions 1 to 4, as far as there are these tables; all true.
CHECK = f"""
select (select sum(w_ytd) from warehouse) = (select sum(d_ytd) from district);
select (select sum(d_ytd) from district) = (select coalesce(sum(h_amount), 0) from history);
select bool_and(d_next_o_id - 1 = (select max(o_id) from orders where o_w_id = d_w_id and o_d_id = d_id))
    from district;
select (select sum(o_ol_cnt) from orders where o_id > {CUSTOMERS})
    = (select count(*) from order_line where ol_o_id > {CUSTOMERS});
"""
LOG = "/tmp/transactions"
# client, number, microseconds, which script, ...
P90 = (
    f"cat {LOG}.* | awk '$4 == 0 {{ print $3 }}' | sort -n | awk '{{ us[NR] = $1 }} END {{ print us[int(NR * 0.9)] }}'"
)


class TpcC(Application):
    """What four clients get done in half a minute; afterwards the books have to balance."""

    name = "tpcc"
    title = "A database with transactions as in TPC-C (figure 5f)"
    data_mib = 250
    operation = "transaction"
    shown = ("per_s", "transactions/s")
    more_shown = {"new_order_p90_ms": "90 % of new orders within, ms"}
    aims = (Aim(1.12, "figure 5f, at least"),)

    filesystem: ClassVar[str] = "ext4"

    def disk(self) -> Path:
        key = data.key("tpcc", LOAD, FUNCTIONS, SCRIPT, postgres.SETTINGS, self.filesystem)
        return store.entry("bench-data", key, lambda out: _make(out, self.filesystem)) / "disk"

    def start(self, machine: Machine) -> None:
        postgres.start(machine)

    def warm_up(self, machine: Machine) -> None:
        read_everything(machine, postgres.files(machine))
        transactions(machine, WARM_SECONDS)

    def run(self, machine: Machine) -> Run:
        count, per_second = transactions(machine, SECONDS)
        p90 = float(machine.tool(machine.borrower, P90)) / 1000
        return Run(count, count / per_second, {"new_order_p90_ms": p90})

    def finish(self, machine: Machine) -> None:
        answers = postgres.query(machine, f"-f {postgres.SQL}/check.sql")
        assert set(answers.split()) == {"t"}, f"the books do not balance: {answers}"


def transactions(machine: Machine, seconds: int) -> tuple[int, float]:
    """How many, and how many a second."""
    scripts = " ".join(f"-f {postgres.SQL}/{name}@{share}" for name, share in SHARES.items())
    options = f"-n -M prepared -c {CLIENTS} -j 1 -T {seconds} --random-seed=2015 -l --log-prefix={LOG}"
    command = f"rm -f {LOG}.*; {postgres.USER} pgbench -h /tmp {options} {scripts} postgres 2>&1"
    said = machine.tool(machine.borrower, command, PATIENCE_SECONDS)
    count = re.search(r"transactions actually processed: (\d+)", said)
    speed = re.search(r"tps = ([\d.]+)", said)
    if not (count and speed) or "number of failed transactions: 0 " not in said:
        raise AssertionError(said)
    return int(count[1]), float(speed[1])


def _make(out: Path, filesystem: str) -> None:
    with step("making a disk with a wholesaler's database (about 1 min)"):
        script = {name: SCRIPT.format(warehouses=WAREHOUSES, districts=DISTRICTS, function=name) for name in SHARES}
        files = {"load.sql": LOAD + FUNCTIONS, "check.sql": CHECK, **script}
        postgres.make(out, files, IMAGE_MIB, filesystem=filesystem)
