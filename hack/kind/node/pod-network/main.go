// pod-network connects the pods of a kind cluster, on nodes that cannot have kindnetd's image.
//
// Every few seconds, on each node, it lists all nodes and
//   - writes the CNI configuration (ptp, host-local, portmap) with this node's pod CIDR,
//   - keeps a route to the pod CIDR of every other node,
//   - masquerades what leaves the cluster's pod subnet.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	account       = "/var/run/secrets/kubernetes.io/serviceaccount/"
	configuration = "/etc/cni/net.d/10-pods.conflist"
	chain         = "PODS-MASQUERADE"
	period        = 10 * time.Second
	retryPeriod   = time.Second
	timeout       = 10 * time.Second
	maxAnswer     = 32 << 20
)

type node struct {
	Spec   struct{ PodCIDR string }
	Status struct {
		Addresses []struct{ Type, Address string }
	}
}

func (n node) address() string {
	for _, one := range n.Status.Addresses {
		if one.Type == "InternalIP" {
			return one.Address
		}
	}
	return ""
}

type cluster struct {
	client         *http.Client
	url            string
	own, podSubnet string
}

func main() {
	authority, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		log.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	here := cluster{
		client: &http.Client{
			Timeout:   timeout,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}},
		},
		url: "https://" + net.JoinHostPort(
			os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")),
		own:       os.Getenv("HOST_IP"),
		podSubnet: os.Getenv("POD_SUBNET"),
	}
	if endpoint := os.Getenv("CONTROL_PLANE_ENDPOINT"); endpoint != "" {
		here.url = "https://" + endpoint // before kube-proxy there is no Service
	}
	for {
		wait := period
		if err := here.connect(); err != nil {
			log.Print(err)
			wait = retryPeriod
		}
		time.Sleep(wait)
	}
}

func (c cluster) connect() error {
	nodes, err := c.nodes()
	if err != nil {
		return err
	}
	for _, one := range nodes {
		if one.Spec.PodCIDR == "" || one.address() == "" {
			continue
		}
		if one.address() == c.own {
			err = configure(one.Spec.PodCIDR)
		} else {
			err = run("ip", "route", "replace", one.Spec.PodCIDR, "via", one.address())
		}
		if err != nil {
			return err
		}
	}
	return masquerade(c.podSubnet)
}

func (c cluster) nodes() ([]node, error) {
	token, err := os.ReadFile(account + "token")
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequest(http.MethodGet, c.url+"/api/v1/nodes", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	answer, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", request.URL, answer.Status)
	}
	var list struct{ Items []node }
	err = json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(&list)
	return list.Items, err
}

func configure(subnet string) error {
	text := fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipMasq": false, "mtu": 1500, "ipam": {
    "type": "host-local", "dataDir": "/run/cni-ipam-state",
    "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": %q}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`, subnet)
	if present, err := os.ReadFile(configuration); err == nil && string(present) == text {
		return nil
	}
	draft := configuration + ".draft"
	if err := os.WriteFile(draft, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(draft, configuration)
}

func masquerade(subnet string) error {
	nat := func(arguments ...string) error {
		return run(append([]string{"iptables", "--wait", "5", "--table", "nat"}, arguments...)...)
	}
	if nat("--check", chain, "--jump", "MASQUERADE") != nil {
		_ = nat("--new-chain", chain) // it may be there, half filled
		for _, rule := range [][]string{
			{"--flush", chain},
			{"--append", chain, "--destination", subnet, "--jump", "RETURN"},
			{"--append", chain, "--jump", "MASQUERADE"},
		} {
			if err := nat(rule...); err != nil {
				return err
			}
		}
	}
	jump := []string{"POSTROUTING", "--source", subnet, "--match", "addrtype", "!", "--dst-type", "LOCAL", "--jump", chain}
	if nat(append([]string{"--check"}, jump...)...) == nil {
		return nil
	}
	return nat(append([]string{"--append"}, jump...)...)
}

func run(command ...string) error {
	within, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	printed, err := exec.CommandContext(within, command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, printed)
	}
	return nil
}
