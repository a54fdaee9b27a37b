// Sends requests over HTTP/2 and prints what it got, one JSON object per line. Arguments: base URL, file of the authority.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

func main() {
	base, authority := os.Args[1], os.Args[2]
	pem, err := os.ReadFile(authority)
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: "localhost"},
		ForceAttemptHTTP2: true,
	}}
	requests := strings.Split(os.Args[3], ",")
	for _, text := range requests {
		fields := strings.Split(text, " ")
		tell(text, send(client, fields[0], base+fields[1], fields[2]))
	}
}

func send(client *http.Client, method, url, upload string) map[string]any {
	var size int
	fmt.Sscan(upload, &size)
	var body io.Reader
	if size > 0 {
		body = strings.NewReader(strings.Repeat("x", size))
	}
	request, err := http.NewRequest(method, url, body)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	response, err := client.Do(request)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	defer response.Body.Close()
	bytes, err := io.ReadAll(response.Body)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	trailers := map[string]string{}
	for name := range response.Trailer {
		trailers[strings.ToLower(name)] = response.Trailer.Get(name)
	}
	return map[string]any{
		"version": response.ProtoMajor, "status": response.StatusCode, "bytes": len(bytes), "trailers": trailers,
	}
}

func tell(request string, answer map[string]any) {
	answer["request"] = request
	line, _ := json.Marshal(answer)
	fmt.Println(string(line))
}
