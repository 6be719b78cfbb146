import os, sys, subprocess, time, http.client
from chronos_site.stack.processes import free_port
def test_x(db):
    port = free_port()
    p = subprocess.Popen([sys.executable, "-W", "default", "-m","uvicorn","chronos_site.asgi:application","--port",str(port)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ,"LOG_LEVEL":"INFO"})
    try:
        for line in p.stdout:
            if "Uvicorn running" in line: break
        for path in ("/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui.css","/healthz","/readyz","/v1/docs","/v1/openapi.json","/admin/login/","/v1/executions"):
            c = http.client.HTTPConnection("127.0.0.1",port,timeout=20); c.request("GET",path, headers={"Authorization":"Bearer chr_x"}); r=c.getresponse(); b=r.read(); print(path,r.status,len(b), r.headers.get("x-request-id")); c.close()
    finally:
        p.terminate(); print(p.stdout.read())
