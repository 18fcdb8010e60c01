"""The chart: what it installs, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from cast import TOP

from tidepool_api_testing.chart import CHART, helm, rendered


def objects(kind: str) -> list[dict[str, Any]]:
    return [document for document in rendered() if document["kind"] == kind]


def container(kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    (workload,) = objects(kind)
    pod = workload["spec"]["template"]["spec"]
    (only,) = pod["containers"]
    return pod, only


def test_its_crds_are_the_generated_ones() -> None:
    """Helm wants them inside the chart: after a change, cp crds/yaml/*.yaml charts/tidepool/crds/."""
    generated = {file.name: file.read_text() for file in (TOP / "crds/yaml").glob("*.yaml")}
    assert {file.name: file.read_text() for file in (CHART / "crds").iterdir()} == generated


def test_it_has_the_projects_version() -> None:
    version = (TOP / "VERSION").read_text().strip()
    for document in rendered():
        assert document["metadata"]["labels"]["app.kubernetes.io/version"] == version
    for kind in ("DaemonSet", "Deployment"):
        assert container(kind)[1]["image"].endswith(f":{version}")


def test_the_agent_has_two_capabilities_and_nothing_else() -> None:
    """And is no root: the capabilities are those of the interpreter that the image starts."""
    pod, agent = container("DaemonSet")
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 107,
        "runAsGroup": 107,
        "supplementalGroups": [65532],
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert agent["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["SYS_PTRACE", "DAC_OVERRIDE"]},
    }
    assert pod["hostPID"] is True
    assert "hostNetwork" not in pod
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]


def made_where(*settings: str) -> str:
    """What the policy says of guests that are made, with these settings."""
    policies = [one for one in rendered("agent", *settings) if one["kind"] == "ValidatingAdmissionPolicy"]
    (guests,) = [one for one in policies if one["metadata"]["name"] == "tidepool-agent-guests"]
    rules = [one["expression"] for one in guests["spec"]["validations"]]
    return " && ".join(" ".join(rule.split()) for rule in rules if rule.startswith("request.operation != 'CREATE'"))


def test_an_agent_reports_machines_only_where_there_may_be_some() -> None:
    """A namespace's pools take whatever is reported in it, and need no grant for that."""
    assert """object.spec.provider in ["KubeVirt"]""" in made_where()
    both = made_where("agent.providers={KubeVirt,Libvirt}", "agent.libvirtNamespace=hosts", "agent.namespaces={a,b}")
    assert """object.spec.provider in ["KubeVirt","Libvirt"]""" in both
    assert "request.namespace == 'hosts' || request.namespace.startsWith('nova-')" in both
    assert """request.namespace in ["a","b"]""" in both


def test_the_agents_are_told_what_they_may_not_touch() -> None:
    """By default they look everywhere and build nowhere."""

    def told(*settings: str) -> set[str]:
        (agent,) = [one for one in rendered("agent", *settings) if one["kind"] == "DaemonSet"]
        arguments: list[str] = agent["spec"]["template"]["spec"]["containers"][0]["args"]
        return {one for one in arguments if one.startswith(("--namespaces", "--build"))}

    assert told() == set()
    assert told("agent.namespaces={a,b}", "agent.buildInGuests=true") == {"--namespaces=a,b", "--build-in-guests"}


@pytest.mark.parametrize("user", [0, 162])
def test_a_hosts_libvirt_sees_whom_the_values_say(user: int) -> None:
    """Nova's user, or root; the capabilities stay two, and nothing confines the look at the host's first process."""
    found = rendered("agent", f"agent.runAsUser={user}", f"agent.runAsGroup={user}", "agent.providers={Libvirt}")
    (pod,) = [one["spec"]["template"]["spec"] for one in found if one["kind"] == "DaemonSet"]
    context = pod["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["runAsNonRoot"]) == (user, user, user != 0)
    assert context["appArmorProfile"] == {"type": "Unconfined"}
    assert pod["containers"][0]["securityContext"] == container("DaemonSet")[1]["securityContext"]


def test_the_operator_has_no_privilege() -> None:
    pod, operator = container("Deployment")
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert operator["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert operator["securityContext"]["readOnlyRootFilesystem"] is True


def test_a_second_operator_is_on_another_node() -> None:
    """Item 6: of two replicas one outlives a node, where there are two of them."""
    (deployment,) = [one for one in rendered("operator", "operator.replicas=2") if one["kind"] == "Deployment"]
    (spread,) = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert deployment["spec"]["replicas"] == 2
    assert (spread["topologyKey"], spread["maxSkew"]) == ("kubernetes.io/hostname", 1)
    assert spread["labelSelector"] == deployment["spec"]["selector"]


def test_nothing_but_metrics_is_reached_and_nothing_but_the_api_server_asked() -> None:
    """Item 10: a NetworkPolicy for each of both."""
    selectors = [workload["spec"]["selector"] for workload in objects("DaemonSet") + objects("Deployment")]
    policies = objects("NetworkPolicy")
    assert [policy["spec"]["podSelector"] for policy in policies] == selectors
    agent, operator = ([rule["ports"] for rule in policy["spec"]["ingress"]] for policy in policies)
    assert (agent, operator) == ([[{"port": "metrics"}]], [[{"port": "metrics"}], [{"port": "health"}]])
    for policy in policies:
        ports = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
        assert ports == {443, 6443, 53}


def test_no_role_has_wildcards_or_anything_to_do_with_secrets() -> None:
    """A right to change a Secret is one to read it: the API server quotes what it refuses before it asks policies."""
    roles = objects("ClusterRole") + objects("Role")
    assert len(roles) > 4
    for rule in (rule for role in roles for rule in role["rules"]):
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
        assert not [resource for resource in rule["resources"] if resource.partition("/")[0] == "secrets"]


@pytest.mark.parametrize(
    "setting",
    [
        "agent.concurrency=0",
        "agent.runAsUser=nova",
        "operator.replicas=many",
        "image.pullPolicy=Sometimes",
        "image.digests.agent=latest",
        "typo=1",
        "agent.typo=1",
        "agent.providers={VMware}",
        "agent.providers={}",
        "agent.namespaces={Shop}",
        "agent.buildInGuests=maybe",
    ],
)
def test_values_that_make_no_sense_are_refused(setting: str) -> None:
    answer = helm("template", "tidepool", str(CHART), "--set", setting)
    assert answer.returncode != 0
    assert setting.partition("=")[0].rpartition(".")[2] in answer.stderr


WRONG = {
    "agent.resources.limits.memory": "lots",
    "agent.resources.requests.memory": "268435456",
    "operator.resources.limits.memory": "1m",
    "operator.resources.limits.cpu": "half",
    "operator.resources.requests.cpu": "0",
    "agent.upgrade.maxUnavailable": "0%",
    "operator.namespaces[0]": "Bad_Name",
    "agent.libvirtNamespace": "Bad_Name",
}
UNUSUAL = {
    "agent.resources.limits.memory": "0.5Gi",
    "agent.resources.limits.cpu": "2",
    "operator.resources.requests.cpu": "0.5",
    "operator.resources.limits.ephemeral-storage": "1G",
    "agent.upgrade.maxUnavailable": "100%",
    "operator.namespaces[0]": "team-2",
}


def test_amounts_and_names_are_held_to_their_form() -> None:
    """Issue 28, fault 13: each wrong one is named with its place, and what looks unusual and is right is taken."""
    answer = helm("template", "t", str(CHART), *(f"--set={key}={value}" for key, value in WRONG.items()))
    assert answer.returncode != 0
    for key in WRONG:
        assert f"at '/{key.replace('[0]', '.0').replace('.', '/')}'" in answer.stderr
    assert rendered("", *(f"{key}={value}" for key, value in UNUSUAL.items()))


def test_a_release_has_a_name_that_leaves_room() -> None:
    """Issue 28, fault 13: labels, as that of a hook's pod with its Job's name, take 63 characters."""
    assert helm("template", "t" * 43, str(CHART)).returncode == 0
    answer = helm("template", "t" * 44, str(CHART))
    assert answer.returncode != 0
    assert f"the release name {'t' * 44} has 44 characters; choose one of at most 43" in answer.stderr


@pytest.mark.parametrize(("tag", "reference"), [("", "@sha256:" + "a" * 64), ("9", "")])
def test_digests_are_those_of_the_charts_own_images(tag: str, reference: str) -> None:
    """Whoever chooses another tag gets what that is."""
    version = tag or (TOP / "VERSION").read_text().strip()
    parts = ("agent", "node-lender")
    settings = [f"image.digests.{part}=sha256:" + "a" * 64 for part in parts] + [f"image.tag={tag}"]
    words = ["--set=nodeLender.enabled=true", *(word for one in settings for word in ("--set-string", one))]
    answer = helm("template", "t", str(CHART), *words)
    images = {line.split()[1] for line in answer.stdout.splitlines() if line.strip().startswith("image:")}
    name = "tidepool.local/tidepool"
    assert images == {f"{name}-operator:{version}", *(f"{name}-{part}:{version}{reference}" for part in parts)}


def test_placement_and_registry_reach_every_pod() -> None:
    """Both workloads, and the Jobs of the hooks."""
    settings = ["image.repository=images.local/team", "image.tag=9", "image.pullSecrets[0].name=s"]
    settings += [f"{part}.nodeSelector.disk=ssd" for part in ("agent", "operator")]
    answer = helm("template", "t", str(CHART), *(word for one in settings for word in ("--set-string", one)))
    for expected in ("images.local/team/tidepool-agent:9", "images.local/team/tidepool-operator:9"):
        assert expected in answer.stdout
    assert answer.stdout.count("disk: ssd") == 5  # and the three hooks
    assert answer.stdout.count("imagePullSecrets") == 5  # and the three hooks


@pytest.mark.parametrize("part", ["agent", "operator"])
def test_a_workload_is_placed_as_the_values_say(part: str) -> None:
    """Tolerations, priority, resources and annotations reach the pod, and only that part's."""
    other = {"agent": "operator", "operator": "agent"}[part]
    settings = [f"{part}.tolerations[0].operator=Exists", f"{part}.priorityClassName=system-node-critical"]
    settings += [f"{part}.resources.limits.memory=1Gi", f"{part}.podAnnotations.team=storage"]
    answer = helm("template", "t", str(CHART), *(word for one in settings for word in ("--set-string", one)))
    documents = [one for one in yaml.safe_load_all(answer.stdout) if one and one["kind"] in ("Deployment", "DaemonSet")]
    pods = {one["metadata"]["name"].removeprefix("t-"): one["spec"]["template"] for one in documents}
    pod = pods[part]["spec"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["containers"][0]["resources"]["limits"]["memory"] == "1Gi"
    assert pods[part]["metadata"]["annotations"]["team"] == "storage"
    assert not {"tolerations", "priorityClassName"} & set(pods[other]["spec"])


def test_every_value_is_explained_and_in_the_schema() -> None:
    """A value without a line of its own in the schema could be misspelt without anybody noticing."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    for section, settings in values.items():
        described = schema["properties"][section]
        assert described["additionalProperties"] is False
        assert set(settings) == set(described["properties"]), section


# ------------------------------------------------------------------------------------------------------ node lenders

LENDING = ("nodeLender.enabled=true", "nodeLender.maxLend=32Gi", "nodeLender.reserve=8Gi", "nodeLender.port=7480")


def lender(*settings: str) -> dict[str, Any]:
    """The pod of the node lender."""
    (found,) = [one for one in rendered("node-lender", *LENDING, *settings) if one["kind"] == "DaemonSet"]
    pod: dict[str, Any] = found["spec"]["template"]["spec"]
    return pod


def test_no_node_lends_unless_the_values_say_so() -> None:
    """Neither a pod of it, nor a word to the agents, nor a right to report a node."""
    assert rendered("node-lender") == []
    (agent,) = [one for one in rendered("agent") if one["kind"] == "DaemonSet"]
    assert not [one for one in agent["spec"]["template"]["spec"]["containers"][0]["args"] if "node" in one]


def test_a_node_lender_has_no_right_and_a_limit() -> None:
    """No root, no capability, no token, no folder of the host; the agents' pods get nothing new for it."""
    pod = lender()
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False
    assert [list(one) for one in pod["volumes"]] == [["name", "emptyDir"]]
    assert (pod["hostNetwork"], "hostPID" in pod) == (False, False)
    assert container["resources"]["limits"]["memory"] == "9Gi"
    assert {one["name"]: one["containerPort"] for one in container["ports"]} == {"pages": 7480, "metrics": 9479}
    (agent,) = [one for one in rendered("agent", *LENDING) if one["kind"] == "DaemonSet"]
    (plain,) = [one for one in rendered("agent") if one["kind"] == "DaemonSet"]
    told = agent["spec"]["template"]["spec"]["containers"][0].pop("args")
    plain["spec"]["template"]["spec"]["containers"][0].pop("args")
    assert agent == plain
    assert {"--node-lender", "--node-max-lend=32Gi", "--node-reserve=8Gi", "--node-port=7480"} <= set(told)


def test_a_node_lender_runs_where_agents_run() -> None:
    """Nobody would tell it anything elsewhere; the values narrow that."""
    (agent,) = [one for one in rendered("agent", *LENDING) if one["kind"] == "DaemonSet"]
    assert lender()["affinity"] == agent["spec"]["template"]["spec"]["affinity"]
    assert lender("nodeLender.nodeSelector.disk=ssd")["nodeSelector"] == {"disk": "ssd"}
    assert lender("nodeLender.tolerations[0].operator=Exists")["tolerations"] == [{"operator": "Exists"}]


def test_borrowers_reach_a_node_lender_and_it_reaches_nobody() -> None:
    (policy,) = [one for one in rendered("node-lender", *LENDING) if one["kind"] == "NetworkPolicy"]
    assert policy["spec"]["ingress"] == [{"ports": [{"port": "pages"}]}, {"ports": [{"port": "metrics"}]}]
    assert policy["spec"]["egress"] == []
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert lender("nodeLender.hostNetwork=true")["hostNetwork"] is True
    on_host = rendered("node-lender", *LENDING, "nodeLender.hostNetwork=true")
    assert "NetworkPolicy" not in {one["kind"] for one in on_host}


def test_agents_report_nodes_only_where_these_lend() -> None:
    """And that they do in the namespace of the release, whichever namespaces they look at."""
    assert """object.spec.provider in ["KubeVirt","Node"]""" in made_where(*LENDING)
    assert "object.spec.provider == 'Node' || request.namespace in" in made_where(*LENDING, "agent.namespaces={a}")


def test_an_operator_of_some_namespaces_sees_the_nodes() -> None:
    """They are in the namespace of the release, which it serves, too, then; and its Lease is called accordingly."""
    found = rendered("operator", "operator.namespaces={shop}", *LENDING)
    bindings = {one["metadata"].get("namespace") for one in found if one["kind"] == "RoleBinding"}
    assert bindings == {"shop", "tidepool-system"}
    (deployment,) = [one for one in found if one["kind"] == "Deployment"]
    variables = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "TIDEPOOL_NAMESPACES", "value": "shop,tidepool-system"} in variables


@pytest.mark.parametrize(
    "setting",
    [
        "nodeLender.enabled=perhaps",
        "nodeLender.maxLend=32",
        "nodeLender.reserve=much",
        "nodeLender.port=70000",
        "nodeLender.port=9479",
        "nodeLender.balloon=true",
    ],
)
def test_wrong_words_about_nodes_are_refused(setting: str) -> None:
    answer = helm("template", "t", str(CHART), "--set", setting)
    assert answer.returncode != 0
    assert "nodeLender" in answer.stderr
