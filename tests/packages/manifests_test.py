"""The files of packaging/ for containers: they parse, refer to what exists, agree with each other, and the configurations in
them are accepted by the binary. No engine runs them here.

With ONCEKEY_SLOW_TESTS=1 the Helm chart is rendered (Go's templates and sprig), every Kubernetes object is compared with
its schema, and the Dockerfile is parsed; scripts/setup test-slow installs what that needs. clean_root_test.py runs the
image's file system.
"""

import copy
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest

try:
    import yaml
except ImportError:  # a Python from elsewhere; Debian's has it
    if sys.executable == "/usr/bin/python3":
        raise
    os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
PACKAGING = PROJECT / "packaging"
CHART = PACKAGING / "helm" / "oncekey"
VERSION = re.search(r"project\(oncekey VERSION ([\d.]+)", (PROJECT / "CMakeLists.txt").read_text())[1]
SLOW = os.environ.get("ONCEKEY_SLOW_TESTS") == "1"

ENVIRONMENT = {"ONCEKEY_STORE": "postgres://oncekey@db.test/oncekey", "ONCEKEY_ADMIN_TOKEN": "0123456789abcdef0123"}
DRAIN_SECONDS = 30  # the default of drain_timeout
STATE_FOLDER = "/var/lib/oncekey"  # of the image; its root cannot be written in these files


def documents(text):
    return [document for document in yaml.safe_load_all(text) if document is not None]


def chart_values():
    return yaml.safe_load((CHART / "values.yaml").read_text())


def rendered(values):
    """The objects that the chart makes of these values."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    context = {"Values": values, "Release": {"Name": "pay", "Namespace": "default", "Service": "Helm"},
               "Chart": {"Name": chart["name"], "Version": chart["version"], "AppVersion": chart["appVersion"]}}
    done = subprocess.run(["go", "run", str(HERE / "render_chart.go"), str(CHART)], input=json.dumps(context),
                          capture_output=True, text=True, check=False,
                          env={**os.environ, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode",
                               "GOCACHE": str(PROJECT / "build" / "go-cache")})
    if done.returncode != 0:
        raise AssertionError(f"the chart does not render:\n{done.stderr}")
    return documents(done.stdout)


def value_sets():
    """Name and values of each way to use the chart that makes other objects."""
    yield "defaults", chart_values()
    embedded = chart_values()
    embedded["store"].update(kind="embedded", storageClass="fast")
    yield "embedded", embedded
    everything = copy.deepcopy(chart_values())
    everything.update(replicas=5, imagePullSecrets=[{"name": "pull"}], podAnnotations={"a": "b"}, nodeSelector={"disk": "ssd"},
                      tolerations=[{"key": "x", "operator": "Exists"}], affinity={"nodeAffinity": {}})
    everything["image"]["tag"] = "1.2.3"
    everything["service"].update(type="LoadBalancer", port=443)
    everything["audit"].update(claim="audit-logs")
    yield "everything", everything
    for kind in ("shared", "embedded"):
        scraped = chart_values()
        scraped["store"].update(kind=kind)
        scraped["admin"] = "0.0.0.0:8081"
        yield f"{kind}, scraped", scraped


def audit_log_of(text):
    """The path of the audit log with this configuration, or None: the usual place for a shared store is below the home
    folder, which no volume of these files holds."""
    config = tomllib.loads(text)
    if "audit_log" in config:
        return pathlib.PurePosixPath(config["audit_log"])
    kind, _, folder = config["store"].partition(":")
    return pathlib.PurePosixPath(folder) / "audit.log" if kind == "journal" else None


def is_below_one_of(path, folders):
    return path is not None and any(path.is_relative_to(folder) for folder in folders)


def accepted(text):
    """What `oncekey check` says of a configuration, with a folder of this machine in place of the volume."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "oncekey.toml"
        file.write_text(text.replace(STATE_FOLDER, folder))
        return subprocess.run([os.environ["ONCEKEY_BINARY"], "check", str(file)], capture_output=True, text=True, check=False,
                              env={**os.environ, **ENVIRONMENT})


def by_kind(objects, kind):
    return [each for each in objects if each["kind"] == kind]


def workloads(objects):
    return by_kind(objects, "Deployment") + by_kind(objects, "StatefulSet")


def containers(workload):
    pod = workload["spec"]["template"]["spec"]
    return pod.get("initContainers", []) + pod["containers"]


def gateway_of(workload):
    return next(container for container in containers(workload) if container["name"] == "oncekey")


class ObjectsOfOneFile:
    """What holds for the objects of one file, or of one rendered chart. Mixed into a TestCase."""

    def objects_by_name(self):
        raise NotImplementedError

    def each(self):
        for name, objects in self.objects_by_name():
            with self.subTest(name):
                yield objects

    def test_the_gateway_runs_without_rights_it_does_not_need(self):
        for objects in self.each():
            for workload in workloads(objects):
                pod = workload["spec"]["template"]["spec"]
                self.assertTrue(pod["securityContext"]["runAsNonRoot"])
                self.assertEqual(pod["securityContext"]["runAsUser"], 10001)
                self.assertIs(pod["automountServiceAccountToken"], False)
                for container in containers(workload):
                    context = container["securityContext"]
                    self.assertEqual((context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"],
                                      context["capabilities"]["drop"]), (False, True, ["ALL"]))

    def test_probes_ask_the_binary_itself(self):
        for objects in self.each():
            for workload in workloads(objects):
                gateway = gateway_of(workload)
                live, ready = ["/usr/bin/oncekey", "health", "--live"], ["/usr/bin/oncekey", "health"]
                self.assertEqual(gateway["startupProbe"]["exec"]["command"], live)
                self.assertEqual(gateway["livenessProbe"]["exec"]["command"], live)
                self.assertEqual(gateway["readinessProbe"]["exec"]["command"], ready)

    def test_an_admin_listener_that_others_reach_has_a_port_and_a_token(self):
        for objects in self.each():
            for workload in workloads(objects):
                text = by_kind(objects, "ConfigMap")[0]["data"]["oncekey.toml"]
                opened = re.search(r'^admin\s*= "0\.0\.0\.0:8081"', text, re.MULTILINE) is not None
                gateway = gateway_of(workload)
                self.assertEqual({"name": "admin", "containerPort": 8081} in gateway["ports"], opened)
                if opened:
                    self.assertIn('admin_token = "env:ONCEKEY_ADMIN_TOKEN"', text)
                    self.assertIn("ONCEKEY_ADMIN_TOKEN", [each["name"] for each in gateway["env"]])

    def test_names_and_labels_lead_to_objects_of_the_same_file(self):
        for objects in self.each():
            pods = [workload["spec"]["template"]["metadata"]["labels"].items() for workload in workloads(objects)]
            selectors = [each["spec"]["selector"] for each in by_kind(objects, "Service")]
            selectors += [each["spec"]["selector"]["matchLabels"]
                          for each in by_kind(objects, "PodDisruptionBudget") + workloads(objects)]
            for selector in selectors:
                self.assertTrue(any(selector.items() <= labels for labels in pods), selector)
            maps = {each["metadata"]["name"] for each in by_kind(objects, "ConfigMap")}
            for workload in workloads(objects):
                volumes = workload["spec"]["template"]["spec"]["volumes"]
                self.assertLessEqual({volume["configMap"]["name"] for volume in volumes if "configMap" in volume}, maps)
                known = {volume["name"] for volume in volumes}
                known |= {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
                self.assertEqual({mount["name"] for mount in gateway_of(workload)["volumeMounts"]}, known)
                ports = {port["name"] for container in containers(workload) for port in container.get("ports", [])}
                for service in by_kind(objects, "Service"):
                    self.assertLessEqual({port["targetPort"] for port in service["spec"]["ports"]}, ports)

    def test_several_gateways_share_a_store_and_a_budget_and_one_has_a_volume(self):
        for objects in self.each():
            for workload in workloads(objects):
                embedded = workload["kind"] == "StatefulSet"
                text = by_kind(objects, "ConfigMap")[0]["data"]["oncekey.toml"]
                self.assertEqual(embedded, "journal:/var/lib/oncekey/store" in text)
                self.assertEqual(embedded, workload["spec"]["replicas"] == 1)
                self.assertEqual(len(by_kind(objects, "PodDisruptionBudget")), 0 if embedded else 1)

    def test_the_pod_lives_longer_than_lame_duck_and_drain(self):
        for objects in self.each():
            text = by_kind(objects, "ConfigMap")[0]["data"]["oncekey.toml"]
            lame_duck = re.search(r'lame_duck\s*=\s*"(\d+)s"', text)
            for workload in workloads(objects):
                grace = workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
                self.assertGreater(grace, DRAIN_SECONDS + (int(lame_duck[1]) if lame_duck else 0))

    def test_the_binary_accepts_the_configuration(self):
        for objects in self.each():
            for config in by_kind(objects, "ConfigMap"):
                done = accepted(config["data"]["oncekey.toml"])
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_audit_log_is_on_a_volume_that_the_gateway_can_write(self):
        for objects in self.each():
            path = audit_log_of(by_kind(objects, "ConfigMap")[0]["data"]["oncekey.toml"])
            for workload in workloads(objects):
                pod = workload["spec"]["template"]["spec"]
                writable = {volume["name"] for volume in pod["volumes"]
                            if "emptyDir" in volume or "persistentVolumeClaim" in volume}
                writable |= {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
                mounts = [mount for mount in gateway_of(workload)["volumeMounts"]
                          if mount["name"] in writable and not mount.get("readOnly")]
                self.assertTrue(is_below_one_of(path, [mount["mountPath"] for mount in mounts]),
                                f"audit log {path}: expected below the mount of a volume that can be written")
                self.assertEqual(pod["securityContext"]["fsGroup"], 10001)

    def test_gateways_that_may_share_a_claim_have_a_folder_each(self):
        for objects in self.each():
            for workload in by_kind(objects, "Deployment"):
                gateway = gateway_of(workload)
                folders = [mount.get("subPathExpr") for mount in gateway["volumeMounts"] if mount["mountPath"] == STATE_FOLDER]
                self.assertEqual(folders, ["$(POD_NAME)"])
                self.assertIn({"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, gateway["env"])


class KubernetesFiles(ObjectsOfOneFile, unittest.TestCase):
    def objects_by_name(self):
        for file in sorted((PACKAGING / "kubernetes").glob("*.yaml")):
            yield file.name, documents(file.read_text())

    def test_images_have_the_version_of_the_project(self):
        for objects in self.each():
            for workload in workloads(objects):
                self.assertTrue(gateway_of(workload)["image"].endswith(f"/oncekey:{VERSION}"))


@unittest.skipUnless(SLOW, "rendering needs Go: ONCEKEY_SLOW_TESTS=1")
class RenderedChart(ObjectsOfOneFile, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rendered = [(name, rendered(values)) for name, values in value_sets()]

    def objects_by_name(self):
        return self.rendered

    def test_values_reach_the_objects(self):
        everything = dict(self.rendered)["everything"]
        workload = by_kind(everything, "Deployment")[0]
        pod = workload["spec"]["template"]["spec"]
        self.assertEqual(workload["spec"]["replicas"], 5)
        self.assertTrue(gateway_of(workload)["image"].endswith(":1.2.3"))
        self.assertEqual((pod["nodeSelector"], pod["imagePullSecrets"]), ({"disk": "ssd"}, [{"name": "pull"}]))
        self.assertEqual(by_kind(everything, "Service")[0]["spec"]["ports"][0]["port"], 443)
        self.assertIn({"name": "audit", "persistentVolumeClaim": {"claimName": "audit-logs"}}, pod["volumes"])
        embedded = by_kind(dict(self.rendered)["embedded"], "StatefulSet")[0]
        self.assertEqual(embedded["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"], "fast")


class Chart(unittest.TestCase):
    def test_has_the_version_of_the_project(self):
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        self.assertEqual((chart["version"], chart["appVersion"]), (VERSION, VERSION))

    def test_the_schema_knows_every_value_and_the_templates_use_it(self):
        schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
        values = chart_values()
        self.assertEqual(set(values), set(schema) - {"global"})
        templates = "".join(file.read_text() for file in (CHART / "templates").iterdir())
        for name, value in values.items():
            nested = value.keys() if isinstance(value, dict) and "properties" in schema[name] else []
            for path in [f"{name}.{inner}" for inner in nested] or [name]:
                self.assertIn(f".Values.{path}", templates)
            self.assertLessEqual(set(nested), set(schema[name].get("properties", {})))


class Containers(unittest.TestCase):
    def setUp(self):
        self.dockerfile = (PACKAGING / "docker" / "Dockerfile").read_text()
        self.compose = yaml.safe_load((PACKAGING / "docker" / "compose.yaml").read_text())

    def test_the_image_has_neither_root_nor_shell_and_asks_itself_for_its_health(self):
        last = self.dockerfile.split("\nFROM ")[-1]
        self.assertTrue(last.startswith("scratch "))
        self.assertRegex(last, r"\nUSER 10001:10001\n")
        self.assertIn('CMD ["/usr/bin/oncekey", "health"]', last)

    def test_what_is_copied_and_called_exists(self):
        for source in re.findall(r"^COPY (?!--from)(\S+) ", self.dockerfile, flags=re.MULTILINE):
            self.assertTrue((PROJECT / source).exists(), source)
        for script in ("scripts/setup", "scripts/package", "packaging/docker/image_root"):
            self.assertIn(script, self.dockerfile)
            self.assertTrue(os.access(PROJECT / script, os.X_OK), script)

    def test_compose_refers_to_stages_and_files_that_exist(self):
        stages = re.findall(r"^FROM \S+ AS (\S+)", self.dockerfile, flags=re.MULTILINE)
        for service in self.compose["services"].values():
            folder = PACKAGING / "docker"
            self.assertEqual((folder / service["build"]["context"]).resolve(), PROJECT)
            self.assertTrue((PROJECT / service["build"]["dockerfile"]).exists())
            self.assertIn(service["build"].get("target", "gateway"), stages)
            for volume in service.get("volumes", []):
                source = volume.split(":")[0]
                self.assertTrue((folder / source).exists() if source.startswith(".") else source in self.compose["volumes"])

    def test_the_binary_accepts_the_configuration_of_compose(self):
        done = accepted((PACKAGING / "docker" / "oncekey.toml").read_text())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_audit_log_of_compose_is_on_a_named_volume(self):
        path = audit_log_of((PACKAGING / "docker" / "oncekey.toml").read_text())
        mounts = [volume.split(":") for volume in self.compose["services"]["gateway"]["volumes"]]
        kept = [mount[1] for mount in mounts if mount[0] in self.compose["volumes"] and mount[2:] != ["ro"]]
        self.assertTrue(is_below_one_of(path, kept), f"audit log {path}: expected below a named volume")


@unittest.skipUnless(SLOW, "needs npm packages and yamllint: ONCEKEY_SLOW_TESTS=1")
class Schemas(unittest.TestCase):
    @staticmethod
    def findings(objects, dockerfiles):
        folder = PROJECT / "build" / "manifest-checks"
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json", "check_manifests.mjs"):
            shutil.copy(HERE / name, folder / name)
        if not (folder / "node_modules" / "kubernetes-models").exists():
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"], cwd=folder,
                           check=True, timeout=300, stdout=subprocess.DEVNULL)
        done = subprocess.run(["node", "check_manifests.mjs"], cwd=folder, capture_output=True, text=True, check=True,
                              input=json.dumps({"objects": [{"from": name, "object": each} for name, each in objects],
                                                "dockerfiles": dockerfiles}))
        return done.stdout.splitlines()

    def test_every_object_follows_its_schema_and_the_dockerfile_parses(self):
        objects = [(file.name, each) for file in sorted((PACKAGING / "kubernetes").glob("*.yaml"))
                   for each in documents(file.read_text())]
        objects += [(f"chart, {name}", each) for name, values in value_sets() for each in rendered(values)]
        dockerfile = {"Dockerfile": (PACKAGING / "docker" / "Dockerfile").read_text()}
        self.assertEqual(self.findings(objects, dockerfile), [])

    def test_planted_faults_are_found(self):
        misspelled = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"spec": {"containers": [{"name": "x", "image": 3, "livenesProbe": {}}]}}}}
        found = self.findings([("planted", misspelled)], {"planted": "FROM x\nRUNN y\n"})
        self.assertEqual(len(found), 3, found)

    def test_yamllint_finds_nothing(self):
        files = sorted(PACKAGING.rglob("*.yaml"))
        files = [str(file) for file in files if file.parent.name != "templates"]
        done = subprocess.run(["yamllint", "--strict", "--config-data", "{extends: default, rules: {document-start: disable, "
                               "line-length: {max: 128}, braces: {max-spaces-inside: 0}, comments-indentation: disable}}", *files],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
